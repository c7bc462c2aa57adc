"""Find labels that are probably wrong with confident learning (Northcutt et al. 2021).

The paper is Confident Learning: Estimating Uncertainty in Dataset Labels. The probabilities must come from models that
were not trained on the samples, since a model memorizes the wrong labels in its training data.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.data.splits import Labels

Probabilities = npt.NDArray[np.floating]
Bools = npt.NDArray[np.bool_]


def estimate_joint(probabilities: Probabilities, labels: Labels) -> npt.NDArray[np.float64]:
    """Estimate the number of samples for each combination of label and true class, [K, K].

    The method is that of section 3.1 in Northcutt et al. 2021. `probabilities` are [n, K] and `labels` [n]. A class is
    confident for a sample if the sample's probability of the class is at least the mean of this probability over the
    samples with that label. A sample is counted for its most likely confident class. Rows sum to the number of samples
    with each label.
    """
    classes = probabilities.shape[1]
    counts = np.bincount(labels, minlength=classes)
    means = [probabilities[labels == label, label].mean() if counts[label] else np.inf for label in range(classes)]
    is_confident = probabilities >= np.array(means)
    has_confident = is_confident.any(1)
    likeliest = np.where(is_confident, probabilities, -1.0).argmax(1)
    joint = np.zeros((classes, classes))
    np.add.at(joint, (labels[has_confident], likeliest[has_confident]), 1)
    joint += np.diag((joint.sum(1) == 0).astype(float))  # a label without a confident sample is considered correct
    return joint / joint.sum(1, keepdims=True) * counts[:, None]


def estimate_error_count(probabilities: Probabilities, labels: Labels) -> float:
    """Estimate the number of wrong labels, given `probabilities` [n, K] and `labels` [n]."""
    joint = estimate_joint(probabilities, labels)
    return float(joint.sum() - joint.trace())


def find_wrong_labels(probabilities: Probabilities, labels: Labels) -> Bools:
    """Return a bool array [n] that is True for each label that is probably wrong, given `probabilities` [n, K].

    The method is "Prune by Noise Rate" (Northcutt et al. 2021, section 3.2). For each label and each other class, the
    joint distribution of `estimate_joint` gives the number of labels to mark. Labels whose probability is furthest
    below that of the other class are marked first.
    """
    joint = np.rint(estimate_joint(probabilities, labels)).astype(int)
    is_wrong = np.zeros(len(labels), bool)
    for label in range(len(joint)):
        rows_of_label = np.flatnonzero(labels == label)
        for other_class in range(len(joint)):
            if other_class != label and joint[label, other_class]:
                lead = probabilities[rows_of_label, other_class] - probabilities[rows_of_label, label]
                is_wrong[rows_of_label[np.argsort(-lead, kind="stable")[: joint[label, other_class]]]] = True
    return is_wrong & (probabilities.argmax(1) != labels)


def compute_label_margins(probabilities: Probabilities, labels: Labels) -> npt.NDArray[np.float64]:
    """Return the probability of each label minus that of the most likely other class, [n].

    The lower it is, the more likely the label is wrong.
    """
    rows = np.arange(len(labels))
    others = probabilities.astype(np.float64)
    label_probabilities = others[rows, labels].copy()
    others[rows, labels] = -1.0
    return label_probabilities - others.max(1)
