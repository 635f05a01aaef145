"""Classification heads that a task adds to a RoBERTa after the model is built."""

from torch import nn


class HeadsInTable:
    """Mix-in for a RoBERTa with a slot table: compile the table again when a task adds a classification head."""

    classification_heads: nn.ModuleDict

    def register_classification_head(self, name, num_classes=None, inner_dim=None, **kwargs):
        super().register_classification_head(name, num_classes, inner_dim, **kwargs)
        self.slot_table = self.compile_slot_table()

    def add_heads_of(self, state_dict) -> None:
        """Register each classification head of ``state_dict`` that is missing in the model."""
        for name, tensor in state_dict.items():
            group, _, head = name.partition(".")
            if group == "classification_heads" and head.endswith(".out_proj.weight"):
                head = head.split(".")[0]
                if head not in self.classification_heads:
                    self.register_classification_head(head, len(tensor), tensor.shape[1])
