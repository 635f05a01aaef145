"""Classification heads that a task adds to a RoBERTa once it is built."""

from torch import nn


class HeadsInTable:
    """Mix-in for a RoBERTa with a slot table: rebuild the table when the task adds a classification head to the built model."""

    classification_heads: nn.ModuleDict

    def register_classification_head(self, name, num_classes=None, inner_dim=None, **kwargs):
        super().register_classification_head(name, num_classes, inner_dim, **kwargs)
        self.slot_table = self.compile_slot_table()

    def add_heads_of(self, state_dict) -> None:
        """Add the classification heads of a state dict that the model does not have."""
        for name, tensor in state_dict.items():
            group, _, head = name.partition(".")
            if group == "classification_heads" and head.endswith(".out_proj.weight"):
                head = head.split(".")[0]
                if head not in self.classification_heads:
                    self.register_classification_head(head, len(tensor), tensor.shape[1])
