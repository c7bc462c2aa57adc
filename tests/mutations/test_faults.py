"""Check that the patches in `faults` still apply to the source, and that the tests that they name exist."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.mutations.run import FAULTS, ROOT, find_patches, has_test, read_declared_tests

GIT = shutil.which("git")


@pytest.mark.skipif(GIT is None, reason="needs git")
def test_all_faults_apply() -> None:
    assert GIT is not None
    patches = list(find_patches([FAULTS]))
    assert patches
    checks = [[GIT, "apply", "--check", str(patch)] for patch in patches]
    assert [check[-1] for check in checks if subprocess.run(check, cwd=ROOT, check=False).returncode] == []


def test_tests_of_faults_exist() -> None:
    tests = {test for patch in find_patches([FAULTS]) for test in read_declared_tests(patch)}
    assert [test for test in sorted(tests) if not has_test(ROOT, test)] == []
