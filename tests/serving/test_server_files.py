import pytest

from keras_transformer.serving import next_version


@pytest.mark.parametrize(
    ("names", "version"),
    [((), "1"), (("1",), "2"), (("2", "9", "10"), "11"), (("3", "x", ".7"), "4")],
)
def test_the_next_version_is_one_above_the_highest(tmp_path, names, version):
    for name in names:
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == tmp_path / version
