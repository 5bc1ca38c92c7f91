"""
Nearest-token attention in a Vision Transformer
===============================================

In `attnknn.vit`, a token attends only to its nearest tokens instead of to all of them. This
example shows which patches of a photograph a patch attends to, for a model that was not trained
yet: the nearest tokens are patches that look alike. `attnknn vit train` trains such models, and
`attnknn vit show` draws the same pictures for them.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_sample_image

from attnknn.vit import extract_attention_maps
from attnknn.vit.model import vit_tiny

photo = load_sample_image("china.jpg")[40:424:3, 150:534:3]  # 128 × 128 pixels
image = torch.tensor(photo.copy()).permute(2, 0, 1)[None] / 127.5 - 1

# %%
# Patches of 8 × 8 pixels: 256 patches and a class token. Each token attends to its 16 nearest
# tokens.

torch.manual_seed(0)
model = vit_tiny("convnn", image_size=128, patch_size=8, num_classes=10, depth=2, n_neighbors=16)
n_parameters = sum(parameter.numel() for parameter in model.parameters())
print(f"{n_parameters:,} parameters, {tuple(model(image).shape)} logits")

# %%
# Four patches, outlined in red, and what they attend to in the first block. Brighter patches are
# chosen by more heads.

layer = extract_attention_maps(model, image)[0]
fig, axes = plt.subplots(1, 4, figsize=(11, 3))
for axis, (row, column) in zip(axes, [(1, 12), (7, 4), (12, 8), (14, 2)], strict=True):
    tokens = layer.tokens[0, :, 1 + 16 * row + column].flatten()  # token 0 is the class token
    counts = np.bincount(tokens[tokens > 0] - 1, minlength=256).reshape(16, 16)
    shade = 0.25 + 0.75 * np.minimum(counts / 2, 1)
    axis.imshow(photo / 255 * shade.repeat(8, 0).repeat(8, 1)[..., None])
    corner = (8 * column - 0.5, 8 * row - 0.5)
    axis.add_patch(plt.Rectangle(corner, 8, 8, fill=False, color="red", linewidth=2))
    axis.axis("off")
fig.tight_layout()
plt.show()
