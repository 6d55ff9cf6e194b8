"""A small language model of the bytes of Python's own library, trained by the Trainer of Hugging Face.

ablate command 'python examples/trainer.py --activation_function={act} --seed={seed} --output_dir={out}' \\
  act=gelu_new,relu metric=eval_loss
"""

import argparse
import inspect
import textwrap
import typing

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

LENGTH = 64  # bytes of an example

parser = argparse.ArgumentParser()
parser.add_argument("--activation_function", default="gelu_new")
parser.add_argument("--weight_decay", type=float, default=0.0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--output_dir", default="out")
options = parser.parse_args()


def examples_of(module: object) -> list[dict[str, torch.Tensor]]:
    """The source of a module in pieces of equal length, each its own label."""
    ids = torch.frombuffer(bytearray(inspect.getsource(module), "utf-8"), dtype=torch.uint8).long()
    return [{"input_ids": piece, "labels": piece} for piece in ids.split(LENGTH) if len(piece) == LENGTH]


set_seed(options.seed)
config = GPT2Config(
    vocab_size=256,
    n_positions=LENGTH,
    n_embd=64,
    n_layer=2,
    n_head=2,
    activation_function=options.activation_function,
    bos_token_id=0,
    eos_token_id=0,
)
arguments = TrainingArguments(
    output_dir=options.output_dir,
    seed=options.seed,
    weight_decay=options.weight_decay,
    max_steps=60,
    learning_rate=2e-3,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=64,
    eval_strategy="steps",
    eval_steps=30,
    logging_steps=30,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(
    GPT2LMHeadModel(config), arguments, train_dataset=examples_of(typing), eval_dataset=examples_of(textwrap)
)
trainer.train()
trainer.save_state()  # trainer_state.json, with all that was logged
