"""Hugging Face transformers: a Marian model with random weights, trained by Seq2SeqTrainer.

Differences from fairseq: the optimizer is the Trainer's default AdamW (fused), without weight decay; the loss is the Trainer's label
smoother; logits have a bias that is not trained.
"""

import sys
import tempfile

from steps import Job
from torch.utils.data import DataLoader, IterableDataset
from transformers import MarianConfig, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments


def build(job):
    return MarianMTModel(
        MarianConfig(
            vocab_size=job.words,
            d_model=job.width,
            encoder_layers=job.encoder_layers,
            decoder_layers=job.decoder_layers,
            encoder_attention_heads=job.heads,
            decoder_attention_heads=job.heads,
            encoder_ffn_dim=job.ffn,
            decoder_ffn_dim=job.ffn,
            activation_function="relu",
            dropout=job.dropout,
            scale_embedding=True,
            bos_token_id=job.BOS,
            pad_token_id=job.PAD,
            eos_token_id=job.EOS,
            forced_eos_token_id=None,
            decoder_start_token_id=job.EOS,
        )
    )


class Handed(IterableDataset):
    """Data set that returns the job's batches in the format of DataCollatorForSeq2Seq."""

    def __init__(self, job, model):
        self.job, self.model = job, model

    def batches(self):
        for source, target in self.job.rectangles():
            yield {
                "input_ids": source,
                "attention_mask": source.ne(self.job.PAD).long(),
                "labels": target.masked_fill(target.eq(self.job.PAD), -100),
                "decoder_input_ids": self.job.after_start(target),
            }

    def __iter__(self):
        return self.job.hand_out(self.batches(), self.model, "transformers")


class Trainer(Seq2SeqTrainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=None)


def main(job):
    model = build(job)
    with tempfile.TemporaryDirectory() as folder:
        arguments = Seq2SeqTrainingArguments(
            output_dir=folder,
            use_cpu=True,
            bf16=job.precision == "bf16",
            max_steps=len(job.batches) + 1,
            learning_rate=job.rate,
            lr_scheduler_type="inverse_sqrt",
            warmup_steps=job.warm_up,
            adam_beta1=job.betas[0],
            adam_beta2=job.betas[1],
            max_grad_norm=job.clip,
            label_smoothing_factor=job.smoothing,
            remove_unused_columns=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=job.seed,
        )
        Trainer(model=model, args=arguments, train_dataset=Handed(job, model)).train()


if __name__ == "__main__":
    main(Job(sys.argv[1]))
