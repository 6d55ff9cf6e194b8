"""Studies of any program: `ablate command 'python train.py --bias={bias} --seed={seed}' bias=true,false`."""
