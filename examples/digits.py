"""A network of scikit-learn on its handwritten digits: prints the accuracy on a third of them.

ablate command 'python examples/digits.py --activation={activation} --scaled={scaled} --seed={seed}' \\
  activation=relu,tanh scaled=false,true metric=accuracy
"""

import argparse

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

parser = argparse.ArgumentParser()
parser.add_argument("--activation", default="relu")
parser.add_argument("--scaled", default="false")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

images, digits = load_digits(return_X_y=True)
splits = train_test_split(images, digits, test_size=1 / 3, random_state=options.seed)
train_images, test_images, train_digits, test_digits = splits
steps = [StandardScaler()] if options.scaled == "true" else []
network = MLPClassifier((32,), activation=options.activation, max_iter=60, random_state=options.seed)
model = make_pipeline(*steps, network)
model.fit(train_images, train_digits)
print(f"accuracy: {model.score(test_images, test_digits):.4f}")
