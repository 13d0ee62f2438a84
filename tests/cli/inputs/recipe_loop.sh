while read line; do
  python pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16
done
