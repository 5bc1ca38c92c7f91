#!/bin/sh
# Fit, predict, explain and evaluate from files, in a folder of its own.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python - "$folder" <<'PYTHON'
import sys

from sklearn.datasets import load_iris

frame = load_iris(as_frame=True).frame.sample(frac=1, random_state=0)
frame[:120].to_csv(f"{sys.argv[1]}/train.csv", index=False)
frame[120:].to_csv(f"{sys.argv[1]}/test.csv", index=False)
PYTHON

attnknn fit "$folder/train.csv" --target target -o "$folder/model"
attnknn predict "$folder/model" "$folder/test.csv" --proba -o "$folder/answers.csv"
head -3 "$folder/answers.csv"
attnknn explain "$folder/model" "$folder/test.csv" --row-numbers 0 -n 3
attnknn evaluate "$folder/model" "$folder/test.csv"
