"""Values of recipes, and problems with recipe files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.checks.job_checks import problems
from engine.contract import recipes
from engine.contract.catalogue import EXTRA_MODULES, load_catalogue
from engine.contract.dataset import DatasetReport, ImageSizes, SplitReport
from engine.contract.job import FIELDS, Job, job_from_values
from engine.contract.problems import errors
from engine.contract.recipes import RecipeFacts, Recipes, collect_facts, load_recipes, read_recipe
from tests.support.fixed_disk import FixedDisk

CATALOGUE = load_catalogue()
ALL = Recipes(recipes.builtin_recipes())


def report(images: int, classes: int) -> DatasetReport:
    names = tuple(f"class {number}" for number in range(classes))
    train = SplitReport("train", dict.fromkeys(names, 1), total=images)
    return DatasetReport(folder="", format="imagefolder", classes=names, splits=(train,))


def facts(images: int = 1000, classes: int = 10, **values: Any) -> RecipeFacts:
    known = {"task": "classification", "model": "resnet18"} | values
    return collect_facts(known, CATALOGUE, report(images, classes), values.keys())


def values(recipe: str, of: RecipeFacts) -> dict[str, Any]:
    found = ALL.get(recipe)
    assert found is not None
    return found.values(of)


def write_recipe(folder: Path, text: str, name: str = "mine") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


SMALL = 'title = "Mine"\nabout = "Mine."\n'


def test_builtin_recipes_are_valid() -> None:
    folder = Path(recipes.__file__).parents[2] / "resources/recipes"
    assert {path.stem for path in folder.iterdir()} == set(recipes.SHIPPED)
    assert [recipe.id for recipe in ALL.all] == list(recipes.SHIPPED)
    for recipe in ALL.all:
        path = folder / f"{recipe.id}.toml"
        assert read_recipe(path) == (msgspec.structs.replace(recipe, path=str(path)), [])
    assert len({recipe.title for recipe in ALL.all}) == len(recipes.SHIPPED)
    tasks = {task.id for task in CATALOGUE.tasks}
    named = [{rule.task} if isinstance(rule.task, str) else set(rule.task or ()) for r in ALL.all for rule in r.when]
    assert set().union(*named, *(recipe.tasks for recipe in ALL.all)) <= tasks


@pytest.mark.parametrize("task", [task for task in CATALOGUE.tasks if not task.file], ids=lambda task: task.id)
@pytest.mark.parametrize("images", [None, 8, 244, 3000, 2_000_000])
def test_builtin_recipes_make_valid_jobs_for_all_models(
    task: Any, images: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        EXTRA_MODULES, "transformers", "json"
    )  # so that the result does not depend on the installed extras
    found = report(images, task.classes or 10) if images else None
    disk = FixedDisk(reachable=True)
    for model in CATALOGUE.models_of(task.id):
        base = {"dataset": str(tmp_path), "task": task.id, "model": model.id}
        of = collect_facts(base, CATALOGUE, found, (), disk)
        for recipe in ALL.for_task(task.id):
            job, wrong = job_from_values(base | recipe.values(of))
            assert wrong == []
            assert job is not None
            warnings = problems(job, CATALOGUE, report=found, disk=disk)
            assert errors(warnings) == [], (recipe.id, model.id)
            # A recipe sets no idle fields; the only warnings are about licenses.
            allowed = (
                {"pretrained"} if job.model.pretrained else {"freeze_epochs"} if recipe.id == "linear-probe" else set()
            )
            assert {problem.field for problem in warnings} <= allowed, (recipe.id, model.id)


def test_initial_recipe_prefers_pretrained_weights() -> None:
    assert recipes.initial_recipe(facts()) == "fine-tune"
    assert recipes.initial_recipe(facts(pretrained=False)) == "from-scratch"
    assert recipes.initial_recipe(facts(model="mnist_cnn")) == "from-scratch"
    assert recipes.initial_recipe(facts(model="mnist_cnn", weights_file="/w.pt")) == "fine-tune"
    assert recipes.initial_recipe(facts(task="custom", model="/task.py")) == "plain"
    assert values("fine-tune", facts())["pretrained"] is True
    assert "pretrained" not in values("fine-tune", facts(model="mnist_cnn", weights_file="/w.pt"))
    assert values("plain", facts()) == {}


def test_collect_facts_ignores_unavailable_weights() -> None:
    lite = {"task": "classification", "model": "timm:tf_efficientnet_lite0"}
    resnet = {"task": "classification", "model": "resnet18"}

    def weights(values: dict[str, Any], disk: FixedDisk | None) -> bool:
        return collect_facts(values, CATALOGUE, None, values, disk).weights

    assert not weights(resnet, FixedDisk(reachable=False))
    assert weights(resnet, FixedDisk(reachable=None))
    assert weights(resnet, FixedDisk(reachable=True))
    assert weights(resnet, FixedDisk("resnet18-f37072fd.pth from download.pytorch.org"))
    assert weights(resnet, None)
    assert weights(lite, FixedDisk(reachable=False))
    assert recipes.initial_recipe(collect_facts(resnet, CATALOGUE, None, (), FixedDisk())) == "from-scratch"
    assert "pretrained" not in values("fine-tune", collect_facts(resnet, CATALOGUE, None, (), FixedDisk()))


@pytest.mark.parametrize("wish", [{"pretrained": True}, {"weights_file": "/w.pt"}, {"resume_from": "/last.pt"}])
def test_collect_facts_asks_no_server_after_a_choice(wish: dict[str, Any]) -> None:
    disk = FixedDisk(reachable=False)
    job = {"task": "classification", "model": "resnet18"} | wish
    assert recipes.initial_recipe(collect_facts(job, CATALOGUE, None, job, disk)) == "fine-tune"
    assert disk.requested_hosts == []


def test_fine_tune_depends_on_model_classes_and_steps() -> None:
    few = values("fine-tune", facts(images=8))
    assert (few["ema_decay"], "freeze_epochs" in few) == (0.9, False)
    some = values("fine-tune", facts(images=800))  # 25 steps in each of 30 epochs
    assert (some["ema_decay"], some["freeze_epochs"], some["epochs"]) == (0.98, 1, 30)
    assert values("fine-tune", facts(images=800, epochs=400))["ema_decay"] == 0.9998  # epochs set by the user
    for name in ("fine-tune", "from-scratch"):
        assert values(name, facts(images=800, epochs=1))["warmup_epochs"] < 1
    assert values("fine-tune", facts(images=800, batch_size=800))["ema_decay"] == 0.9
    assert "label_smoothing" not in values("fine-tune", facts(classes=4))
    assert values("fine-tune", facts(classes=5))["label_smoothing"] == 0.1
    assert values("fine-tune", facts(model="vit_b_16"))["layer_decay"] == 0.75
    assert "layer_decay" not in values("fine-tune", facts(model="timm:mobilevit_s"))
    assert values("fine-tune", facts(task="detection", model="retinanet_resnet50_fpn"))["clip_norm"] == 10


def test_fine_tuning_detector_on_encoder_trains_heads_faster() -> None:
    on_encoder = values("fine-tune", facts(images=5000, task="detection", model="fasterrcnn"))
    on_coco = values("fine-tune", facts(images=5000, task="detection", model="fasterrcnn_resnet50_fpn"))
    assert (on_encoder["head_rate"], on_encoder["freeze_batchnorm"]) == (3.0, True)
    assert not {"head_rate", "freeze_batchnorm"} & on_coco.keys()
    attention = values("fine-tune", facts(images=5000, task="detection", model="fasterrcnn", encoder="mit_b0"))
    assert attention["learning_rate"] < on_encoder["learning_rate"]
    assert attention["learning_rate"] * attention["head_rate"] == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("fields", "rate"),
    [
        ({"model": "hed"}, 1e-4),
        ({"model": "hed_encoder", "encoder": "tu-tf_efficientnet_lite0"}, 1e-3),
        ({"model": "hed_encoder", "encoder": "mit_b0"}, 1e-4),
    ],
)
@pytest.mark.parametrize("recipe", ["fine-tune", "quick-look"])
def test_fine_tuning_raises_the_rate_of_edges_with_batch_norm(recipe: str, fields: dict[str, Any], rate: float) -> None:
    assert values(recipe, facts(task="edge_detection", **fields))["learning_rate"] == rate


@pytest.mark.parametrize(("images", "batch_size", "rate"), [(44, 2, 2e-3), (4400, 8, 5e-4)])
def test_fine_tuning_takes_small_batches_of_few_roads(images: int, batch_size: int, rate: float) -> None:
    of_roads = values("fine-tune", facts(images=images, task="road_extraction", model="linknet_mtl"))
    assert (of_roads["batch_size"], of_roads["learning_rate"]) == (batch_size, rate)


def test_fine_tune_uses_the_crop_of_the_weights() -> None:
    assert values("fine-tune", facts(model="resnet50"))["val_crop"] == 0.966  # 224 of 232 px
    assert values("fine-tune", facts(model="timm:vit_base_patch16_224", image_size=224))["val_crop"] == 0.9
    assert values("fine-tune", facts(model="resnet50", image_size=64)).get("val_crop") is None
    custom = facts(model="timm:test_vit4", image_size=160, weights_file="mine.safetensors")
    assert values("fine-tune", msgspec.structs.replace(custom, of_weights={}))["val_crop"] == 0.875


@pytest.mark.parametrize(
    ("side", "model", "size", "epochs"),
    [(28, "resnet50", 96, 15), (48, "resnet50", 96, 15), (49, "resnet50", None, 30), (28, "vit_b_16", None, 30)],
)
def test_fine_tuning_on_small_images_is_short(side: int, model: str, size: int | None, epochs: int) -> None:
    sizes = ImageSizes((8, 8), (side, 20), (900, 900), 100)
    found = msgspec.structs.replace(report(800, 10), sizes=sizes)
    tuned = values("fine-tune", collect_facts({"task": "classification", "model": model}, CATALOGUE, found, ()))
    assert (tuned.get("image_size"), tuned["epochs"]) == (size, epochs)


def test_recipe_uses_a_valid_image_size() -> None:
    recipe = msgspec.structs.replace(ALL.all[0], when=(), scale={}, set={"image_size": 80})
    on_unet = recipe.values(facts(task="segmentation", model="unet"))
    assert (on_unet, recipe.values(facts(model="vgg11"))) == ({"image_size": 96}, {"image_size": 80})


@pytest.mark.parametrize(
    ("task", "model", "encoder", "family"),
    [
        ("classification", "resnet18", "mit_b0", "cnn"),
        ("segmentation", "unet", "resnet34", "cnn"),
        ("segmentation", "unet", "mit_b0", "transformer"),
        ("detection", "dfine_n", "", "detr"),
        ("segmentation", "eomt_s_semantic", "", "mask_transformer"),
    ],
)
def test_family_is_that_of_an_encoder_in_use(task: str, model: str, encoder: str, family: str) -> None:
    assert facts(task=task, model=model, encoder=encoder).family == family


def test_recipe_scales_the_rate_with_the_batch() -> None:
    assert values("torchvision-detection", facts(task="detection", batch_size=4))["learning_rate"] == 0.005
    scratch = {"model": "mnist_cnn", "batch_size": 64}
    assert values("from-scratch", facts(**scratch))["learning_rate"] == 0.025
    assert values("from-scratch", facts(**scratch | {"batch_size": 7}))["learning_rate"] == 0.002734, "rounded"
    assert values("from-scratch", facts(model="vit_b_16", batch_size=64))["learning_rate"] == 6.25e-5
    for_masks = facts(task="segmentation", model="unet", batch_size=64)
    assert values("from-scratch", for_masks)["learning_rate"] == 0.001
    assert values("torchvision-classification", facts())["learning_rate"] == 0.1


def test_recipe_omits_idle_fields_of_the_task() -> None:
    assert "label_smoothing" in values("timm-a1", facts())
    of_points = values("quick-look", facts(task="point_segmentation", model="pointcnn"))
    assert "image_size" not in of_points
    assert (
        values("quick-look", facts(task="detection", model="ssd300_vgg16"))["image_size"] == 300
    )  # the model's minimum


def test_recipe_omits_idle_fields_of_chosen_values() -> None:
    momentum = ("momentum", "beta2", "nesterov")
    recipe = msgspec.structs.replace(ALL.all[0], when=(), scale={}, set=dict.fromkeys(momentum, 0.5))
    assert recipe.values(facts(optimizer="adamw")).keys() == {"momentum", "beta2"}
    assert recipe.values(facts(optimizer="sgd")).keys() == {"momentum", "nesterov"}
    assert recipe.values(facts(optimizer="adagrad")) == {}
    assert "milestones" in values("torchvision-classification", facts())
    assert "milestones" not in values("torchvision-classification", facts(schedule="cosine"))
    assert "ema_ramp" not in values("fine-tune", facts(ema_decay=None))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('task = "classification"', True),
        ('task = ["detection", "multilabel"]', False),
        ('model = "cnn"', True),
        ("encoder = true", False),
        ("batch_norm = true", True),
        ("batch_norm = false", False),
        ("weights = true", True),
        ("pretrained = true", True),
        ("weights = false", False),
        ("images = { min = 1000, max = 1000 }", True),
        ("images = { max = 999 }", False),
        ("images_per_class = { min = 101 }", False),
        ("image_size = { min = 64, max = 64 }", True),
        ("parameters = { min = 11_689_512, max = 11_689_512 }", True),
        ("parameters = { max = 1000 }", False),
        ("batch_size = { max = 31 }", False),
        ("epochs = { min = 5, max = 5 }", True),
        ("steps = { min = 155, max = 155 }", True),
        ('classes = { min = 10 }\nmodel = "transformer"', False),
    ],
)
def test_rule_holds_if_all_conditions_hold(tmp_path: Path, condition: str, holds: bool) -> None:
    recipe, wrong = read_recipe(
        write_recipe(tmp_path, f"{SMALL}[[when]]\n{condition}\nset = {{ seed = 1, epochs = 9 }}\n")
    )
    assert len(wrong) == 1
    assert "set.seed" in wrong[0].message
    recipe, wrong = read_recipe(write_recipe(tmp_path, f"{SMALL}[[when]]\n{condition}\nset = {{ mixup = 0.5 }}\n"))
    assert recipe is not None
    assert recipe.values(facts(image_size=64, weights_file="/w.pt")) == ({"mixup": 0.5} if holds else {})


def test_rule_depends_on_values_of_earlier_rules(tmp_path: Path) -> None:
    rules = "[[when]]\nset = { epochs = 9 }\n[[when]]\nepochs = { min = 9 }\nset = { mixup = 0.5 }\n"
    recipe, _ = read_recipe(write_recipe(tmp_path, f"{SMALL}[set]\nbatch_size = 64\n{rules}"))
    assert recipe is not None
    assert recipe.values(facts()) == {"batch_size": 64, "epochs": 9, "mixup": 0.5}
    assert recipe.values(facts(epochs=8)) == {"batch_size": 64, "epochs": 9}


def test_rule_does_not_hold_for_unknown_facts(tmp_path: Path) -> None:
    text = f"{SMALL}[[when]]\nsteps = {{ min = 1 }}\nset = {{ mixup = 0.5 }}\n[[when]]\nclasses = {{ max = 9 }}\nset = {{ mixup = 1 }}"
    recipe, _ = read_recipe(write_recipe(tmp_path, text))
    assert recipe is not None
    assert recipe.values(RecipeFacts(task="classification")) == {}
    empty = facts(images=0, classes=0)
    assert (empty.images, empty.classes) == (None, None)
    assert recipe.values(facts(images=8)) == {"mixup": 0.5}, "a single incomplete batch is trained"


@pytest.mark.parametrize(("scale", "rate"), [("", 0.3), ("scale = { learning_rate = { batch = 8 } }", 1.2)])
def test_rule_replaces_the_scale_of_its_value(tmp_path: Path, scale: str, rate: float) -> None:
    text = f"{SMALL}[scale]\nlearning_rate = {{ batch = 16 }}\n[set]\nlearning_rate = 0.1\n"
    recipe, _ = read_recipe(
        write_recipe(tmp_path, f"{text}[[when]]\nimages = {{ min = 100 }}\nset = {{ learning_rate = 0.3 }}\n{scale}")
    )
    assert recipe is not None
    assert [recipe.values(facts(images=n))["learning_rate"] for n in (99, 100)] == [0.2, rate]


def test_read_recipe_reports_all_problems(tmp_path: Path) -> None:
    path = write_recipe(
        tmp_path,
        """
        title = " "
        about = 3
        id = "mine"
        taks = ["classification"]
        [set]
        weight_file = "w.pt"
        epochs = "many"
        devices = ["cpu"]
        [[when]]
        image = { min = 3 }
        steps = { from = 3 }
        pretrained = "yes"
        set = { optimizer = "adamv" }
        [scale]
        learning_rate = { batch = 0 }
        epochs = { batch = 8 }
        """,
    )
    recipe, wrong = read_recipe(path)
    assert recipe is None
    keys = (
        "“title”", "“about”", "“id”", "“taks”", "“set.weight_file”", "“set.epochs”", "“set.devices”", "“[[when]] 1: image”",
        "“[[when]] 1: steps”", "“[[when]] 1: pretrained”", "“[[when]] 1: set.optimizer”", "“scale.learning_rate”", "“scale.epochs”",
    )  # fmt: skip
    for key in keys:
        assert len([problem for problem in wrong if f"mine.toml: {key}" in problem.message]) == 1, key
    assert len(wrong) == len(keys)
    assert all(problem.remedy for problem in wrong)
    remedies = {key: problem.remedy for problem in wrong for key in keys if key in problem.message}
    assert (remedies["“set.devices”"], remedies["“set.weight_file”"]) == ("Remove it.", "Did you mean “weight_decay”?")


@pytest.mark.parametrize("rules", ["when = 3", "when = [3]"])
def test_read_recipe_refuses_other_rules(tmp_path: Path, rules: str) -> None:
    recipe, (problem,) = read_recipe(write_recipe(tmp_path, f"{SMALL}{rules}\n"))
    assert (recipe, problem.remedy) == (None, "Begin each rule with [[when]].")


def test_load_recipes_lists_invalid_recipes(separate_home: Path) -> None:
    folder = separate_home / "recipes"
    write_recipe(folder, SMALL)
    write_recipe(folder, SMALL, "plain")
    write_recipe(folder, "title = ", "torn")
    write_recipe(folder, SMALL.replace("Mine", "a recipe"), "zoo")
    (folder / "notes.toml.bak").write_text("Not a recipe.")
    found = load_recipes()
    assert [recipe.id for recipe in found.all if recipe.path] == ["zoo", "mine"]
    assert {broken.id: broken.problems[0].message.split(":")[0] for broken in found.broken} == {
        "plain": "plain.toml", "torn": f"{folder / 'torn.toml'} is not valid TOML",
    }  # fmt: skip
    recipe, why = found.find("torn")
    assert recipe is None
    assert "not valid TOML" in str(why[0])
    assert found.find("MINE")[0] == found.get("mine")
    assert found.find("A Recipe")[0] == found.find(str(folder / "zoo.toml"))[0] == found.get(str(folder / "zoo.toml"))
    assert "Did you mean “fine-tune”?" in str(found.find("finetune")[1][0])


def refuse(_source: Path, _target: Path) -> None:
    raise OSError(28, "The disk is full")


def test_saved_recipe_is_read_renamed_and_deleted(separate_home: Path) -> None:
    expected = {"epochs": 7, "milestones": (2, 4), "schedule": "step", "clip_norm": 0.5, "momentum": 0.0}
    settings = expected | {"mixup": 0.0, "seed": 3}
    assert recipes.save_recipe(" My “best” run", "", "classification", settings) == "my-best-run"
    recipe = load_recipes().get("my-best-run")
    assert recipe is not None
    assert recipe.values(facts()) == expected
    assert (recipe.title, recipe.about, recipe.tasks) == ("My “best” run", "A custom recipe.", ("classification",))
    path = Path(recipe.path)
    saved = path.read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", refuse)
        with pytest.raises(OSError, match="full"):
            recipes.save_recipe("My “best” run", "", "classification", {"epochs": 8})
    assert path.read_text() == saved
    path.write_text("# How I do it.\n" + path.read_text())
    assert recipes.rename_recipe(recipe, "Another") == "another"
    assert not path.exists()
    renamed = load_recipes().get("another")
    assert renamed is not None
    assert renamed == msgspec.structs.replace(recipe, id="another", title="Another", path=renamed.path)
    assert Path(renamed.path).read_text().startswith("# How I do it.\n")
    assert recipes.rename_recipe(renamed, "ANOTHER ") == "another"
    assert load_recipes().get("another") == msgspec.structs.replace(renamed, title="ANOTHER")
    recipes.delete_recipe(renamed.path)
    assert load_recipes() == ALL
    recipes.save_recipe("Described", " Short. ", "classification", {})
    assert [recipe.about for recipe in load_recipes().all[len(ALL.all) :]] == ["Short."]


def test_title_problem_refuses_invalid_and_builtin_titles() -> None:
    assert recipes.title_problem("…") != ""
    assert "built-in" in recipes.title_problem("Fine tune")
    assert recipes.title_problem("Überprüfung 2") == ""


def test_settable_fields_are_those_of_training() -> None:
    assert not {"dataset", "model", "devices", "seed", "weights_file", "resume_from", "recipe"} & set(recipes.SETTABLE)
    assert {"epochs", "learning_rate", "augmentation", "pretrained", "image_size"} <= set(recipes.SETTABLE)
    assert set(FIELDS) > set(recipes.SETTABLE)
    assert Job().recipe == ""
