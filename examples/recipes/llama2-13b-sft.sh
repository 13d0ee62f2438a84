#!/bin/bash
# Fine-tuning by Hugging Face's Trainer (TRL) under Accelerate:
# orrery import llama2-13b-sft.sh --cluster a100-80g-ib-200g
accelerate launch --config_file fsdp.yaml --num_processes ${GPUS:-16} sft.py \
  --model_name_or_path meta-llama/Llama-2-13b-hf \
  --dataset_name timdettmers/openassistant-guanaco \
  --max_length 2048 --packing True \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 \
  --attn_implementation flash_attention_2 --use_liger_kernel \
  --learning_rate 2e-5 --num_train_epochs 1 --bf16 True --output_dir out
