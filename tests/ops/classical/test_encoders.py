from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.classical.oracle import check, run
from whence.errors import ModelError

X = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, -2.5]], np.float32)
WHOLE = np.array([[0, 1, 2], [2, 7, -1]])
TEXTS = np.array([["a", "b"], ["c", "zz"]], object)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_scaler(dtype: type) -> None:
    check("Scaler", X.astype(dtype), offset=(0.1, 0.2, 0.3), scale=(1.0, 2.0, 3.0))
    check("Scaler", X.astype(dtype), offset=(0.1,), scale=(2.0,))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str, dtype: type) -> None:
    check("Normalizer", X.astype(dtype), norm=norm)


def test_unknown_norm() -> None:
    with pytest.raises(ModelError, match="Normalizer: unknown norm 'L3'"):
        run("Normalizer", X, norm="L3")


def test_binarizer_and_extractor() -> None:
    check("Binarizer", X, threshold=0.5)
    check("ArrayFeatureExtractor", X, np.array([[2, 0]]))
    check("ArrayFeatureExtractor", np.array([1.0, 2.0, 3.0], np.float32), np.array([[2, 0]]))


def test_imputer() -> None:
    check("Imputer", X, imputed_value_floats=(7.0, 8.0, 9.0), replaced_value_float=0.0)
    missing = X.copy()
    missing[0, 1] = np.nan
    check("Imputer", missing, imputed_value_floats=(7.0,), replaced_value_float=float("nan"))
    check("Imputer", WHOLE, imputed_value_int64s=(5,), replaced_value_int64=2)
    with pytest.raises(ModelError, match="Imputer: 2 imputed values"):
        run("Imputer", X, imputed_value_floats=(7.0, 8.0))


def test_numbers_for_columns_fit_them() -> None:
    assert run("Imputer", np.float32(2), imputed_value_floats=(7.0,)).shape == ()
    assert run("Scaler", np.float32(2), scale=(3.0,)).tolist() == 6
    with pytest.raises(ModelError, match="Scaler: 2 scales do not fit"):
        run("Scaler", X, scale=(1.0, 2.0))
    with pytest.raises(ModelError, match="Scaler: 3 offsets do not fit shape"):
        run("Scaler", np.float32(2), offset=(1.0, 2.0, 3.0))
    for widths in ((-1, 3), (3,), (1, 2, 3)):
        with pytest.raises(ModelError, match="are not widths of 2 inputs"):
            run("FeatureVectorizer", X, X, inputdimensions=widths)


def test_feature_vectorizer() -> None:
    check("FeatureVectorizer", X, X[:, :1], inputdimensions=(3, 1))
    assert run("FeatureVectorizer", X[:, :2], X, inputdimensions=(3, 1)).tolist()[0] == [
        0.5,
        -1,
        0,
        0.5,
    ]


def test_one_hot() -> None:
    check("OneHotEncoder", WHOLE, cats_int64s=(-1, 0, 2), zeros=1)
    check("OneHotEncoder", X, cats_int64s=(-1, 0, 2), zeros=1)
    check("OneHotEncoder", TEXTS, cats_strings=("a", "zz"), zeros=1)
    with pytest.raises(ModelError, match="OneHotEncoder: a value is in none of the 1 categories"):
        run("OneHotEncoder", WHOLE, cats_int64s=(1,), zeros=0)


def test_labels() -> None:
    check(
        "LabelEncoder",
        TEXTS,
        opset=2,
        keys_strings=("a", "b", "c"),
        values_int64s=(1, 2, 3),
        default_int64=-5,
    )
    check("LabelEncoder", WHOLE, opset=2, keys_int64s=(0, 1, 2), values_strings=("x", "y", "z"))
    check(
        "LabelEncoder",
        X,
        opset=2,
        keys_floats=(0.0, 0.5),
        values_floats=(5.0, 6.0),
        default_float=-1.0,
    )


def test_labels_from_tensors() -> None:
    keys, values = np.array([1.0, np.nan]), np.array([10, 20], np.int16)
    result = run(
        "LabelEncoder",
        np.array([np.nan, 1.0, 2.0]),
        keys_tensor=keys,
        values_tensor=values,
        default_tensor=np.array([-7], np.int16),
    )
    assert result.dtype == np.int16
    assert result.tolist() == [20, 10, -7]
    assert run(
        "LabelEncoder", np.array([1]), keys_int64s=(1, 1), values_int64s=(3, 4)
    ).tolist() == [4]
    with pytest.raises(ModelError, match="LabelEncoder: keys and values must be given"):
        run("LabelEncoder", np.array([1]), keys_int64s=(1, 2), values_int64s=(3,))


def test_categories() -> None:
    names: dict[str, Any] = {"cats_strings": ("a", "b", "c"), "cats_int64s": (0, 1, 2)}
    check("CategoryMapper", TEXTS, default_int64=-1, **names)
    check("CategoryMapper", WHOLE, default_string="?", **names)


def test_maps() -> None:
    check("DictVectorizer", {"a": 1.0, "c": 4.0}, string_vocabulary=("a", "b", "c"))
    check("CastMap", {3: 4.0, 1: 1.0}, cast_to="TO_FLOAT")
    check("CastMap", {3: 4.0, 1: 1.0}, cast_to="TO_STRING")
    check("CastMap", {3: 4.0, 1: 1.0}, cast_to="TO_INT64", map_form="SPARSE", max_map=5)
    with pytest.raises(ModelError, match="CastMap: input 0 must be a map"):
        run("CastMap", X)


def test_zip_map() -> None:
    check("ZipMap", X, classlabels_int64s=(1, 2, 3))
    check("ZipMap", X, classlabels_strings=("a", "b", "c"))
    with pytest.raises(ModelError, match="ZipMap: 3 columns do not fit 1 labels"):
        run("ZipMap", X, classlabels_int64s=(1,))
