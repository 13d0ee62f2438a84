ARGS="--num-layers 24 --hidden-size 1024
python pretrain_gpt.py $ARGS --num-attention-heads 16
