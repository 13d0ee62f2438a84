// GPT-NeoX: its YAML, one file or several that are laid over each other; what one argument says
// alone stands in data/recipes/gpt_neox.csv, DeepSpeed's part in deepspeed.csv. Source of defaults
// and meaning: EleutherAI/gpt-neox, megatron/neox_arguments (neox_args.py, arguments.py) and
// megatron/model/transformer.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/huggingface.h"
#include "orrery/recipes/tokenizers.h"

namespace orrery::recipes {
namespace {

using formats::Node;

// [[["flash"], 44]]: the kinds of attention in it; [["flash", "mamba"], 2] has two.
void CollectKinds(const Node& node, std::vector<std::string>* kinds) {
  const bool word = node.kind == Node::Kind::kScalar && !node.text.empty() &&
                    node.text.find_first_not_of("0123456789") != std::string::npos;
  if (word && node.text != "all" && std::ranges::find(*kinds, node.text) == kinds->end()) {
    kinds->push_back(node.text);
  }
  for (const Node& item : node.items) CollectKinds(item, kinds);
}

void ReadNeoxShapes(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t hidden = draft.Whole("model.hidden", 0);
  const std::string activation = r->Text("activation");
  const bool gated = activation == "swiglu" || activation == "geglu";
  const auto width = r->Whole("intermediate_size");
  const double factor = r->Real("expansion_factor", 4);
  const std::int64_t multiple = r->Whole("mlp_multiple_of").value_or(1);
  if (activation == "gelu" || activation == "relu" || gated) {
    draft.SetText("model.activation", gated ? "swiglu" : activation);
    if (activation == "geglu") draft.Assume("activation geglu: priced as swiglu");
  } else {
    r->Refuse("activation", fmt::format("'{}' has no cost model; gelu, geglu, relu and swiglu do",
                                        Printable(activation, 40)));
  }
  // A gated layer's two halves together take two thirds of the width (transformer.py).
  constexpr double kMost = 1e12;  // more than any model has
  const double product = factor * static_cast<double>(hidden);
  std::int64_t ffn =
      width.value_or(product > 0 && product < kMost ? static_cast<std::int64_t>(product)
                                                    : 4 * std::min(hidden, std::int64_t{1} << 40));
  if (gated) ffn = std::min(ffn, std::int64_t{1} << 40) * 2 / 3 / 2;
  ffn = RoundUp(ffn, multiple);
  if (ffn > 0) draft.Set("model.ffn_hidden", ffn);
  const std::string norm = r->Text("norm"), position = r->Text("pos_emb");
  if (norm == "layernorm" || norm == "rmsnorm") {
    draft.SetText("model.norm", norm);
  } else {
    r->Refuse("norm",
              fmt::format("'{}' is not modelled; layernorm and rmsnorm are", Printable(norm, 40)));
  }
  if (position == "rotary" || position == "learned" || position == "none" || position == "alibi") {
    draft.SetText("model.position", position == "alibi" ? "none" : position);
  } else {
    r->Refuse("pos_emb", fmt::format("'{}' is not modelled; rotary, learned, alibi and none are",
                                     Printable(position, 40)));
  }
  const auto off = [&](std::string_view flag) { return r->Has(flag) && !r->On(flag); };
  draft.Set("model.attention_bias", !off("use_bias_in_attn_linear"));
  draft.Set("model.mlp_bias", !off("use_bias_in_mlp"));
  const bool parallel = r->On("gpt_j_residual"), tied = r->On("gpt_j_tied");
  if (parallel) draft.Set("model.parallel_block", true);
  if (parallel && tied) draft.Set("model.shared_norm", true);
  const double dropout = std::max(r->Real("hidden_dropout", 0), r->Real("attention_dropout", 0));
  draft.Set("model.dropout", fmt::format("{}", dropout));
}

void ReadNeoxVocabulary(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t tp = std::max<std::int64_t>(1, draft.Whole("parallel.tp", 1));
  const std::int64_t multiple =
      Product({r->Whole("make_vocab_size_divisible_by").value_or(128), tp});
  const auto padded = r->Whole("padded_vocab_size");
  const std::string type = r->Text("tokenizer_type"), file = r->TextIfKnown("vocab_file");
  const std::string name = type == "GPT2BPETokenizer" || type == "HFGPT2Tokenizer" ? "gpt2" : file;
  if (r->IsSet("model.vocab")) return;
  if (padded) return draft.Set("model.vocab", *padded);
  const Tokenizer* found = FindTokenizer(name);
  if (found == nullptr) {
    return r->Missing(
        fmt::format("how large its vocabulary is (of {} {}): give --set model.vocab=N",
                    Printable(type, 40), Printable(file, 80)));
  }
  draft.Set("model.vocab", RoundUp(found->vocab, multiple));
  draft.Assume(fmt::format("model.vocab: {} of the tokenizer {} ({}), padded to {}", found->vocab,
                           found->name, found->source, multiple));
}

void ReadKernels(const std::vector<std::string>& kinds, Reading* r) {
  Draft& draft = r->draft();
  const auto is = [&](std::string_view kind) { return kinds.size() == 1 && kinds.front() == kind; };
  const bool fused =
      r->On("scaled_upper_triang_masked_softmax_fusion") || r->On("scaled_masked_softmax_fusion");
  const bool biased = r->On("bias_gelu_fusion");
  r->Find("attention_config");
  if (is("flash")) {
    draft.SetText("framework_options.attention", "flash2");
  } else if (kinds.empty() || is("global")) {
    draft.SetText("framework_options.attention", "unfused");
    if (!fused) {
      draft.Assume("attention's softmax is priced as the fused one, which is not asked for");
    }
  } else {
    r->Refuse("attention_config",
              fmt::format("layers of {} are not modelled; global and flash are, one for all",
                          fmt::join(kinds, ", ")));
  }
  draft.Set("framework_options.fused_bias_activation", biased);
}

void ReadPrecision(Reading* r) {
  Draft& draft = r->draft();
  const std::string precision = r->Text("precision");
  const bool fp16 = r->On("fp16.enabled") || r->On("fp16.fp16") || precision == "fp16";
  const bool bf16 = r->On("bf16.enabled") || precision == "bfloat16";
  if (fp16 && bf16) r->Problem(fmt::format("{}: fp16 and bf16 are both on; keep one", r->file()));
  draft.SetText("training.precision", bf16 ? "bf16" : fp16 ? "fp16" : "fp32");
  const bool whole = r->On("fp32_allreduce");
  if (bf16 || fp16) draft.Set("framework_options.grad_reduce_fp32", whole);
  const std::string optimizer = Lower(r->Text("optimizer.type"));
  if (optimizer.empty() || optimizer == "adam" || optimizer == "adamw") {
    draft.SetText("training.optimizer", optimizer == "adamw" ? "adamw" : "adam");
  } else if (optimizer == "cpu_adam" || optimizer == "sgd") {
    draft.SetText("training.optimizer", optimizer == "sgd" ? "sgd" : "adam");
  } else {
    r->Refuse("optimizer.type", fmt::format("'{}' is not modelled; Adam, AdamW and SGD are",
                                            Printable(optimizer, 40)));
  }
  const bool clips = !r->Has("gradient_clipping") || r->Real("gradient_clipping", 1) != 0;
  if (!clips) draft.Set("framework_options.clip_gradients", false);
}

void ReadNeoxStages(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t pp = r->Whole("pipe_parallel_size").value_or(0);
  const std::string method = r->Text("pipe_partition_method");
  const std::int64_t layers = draft.Whole("model.layers", 0);
  if (pp <= 1) return;
  draft.Set("parallel.pp", pp);
  // type:transformer|mlp counts layers; so does "parameters" where all are alike.
  if (layers > 0 && layers % pp != 0) {
    r->Refuse("pipe_partition_method",
              fmt::format("{} layers by '{}' on {} stages are not modelled; a multiple of {} is",
                          layers, Printable(method, 40), pp, pp));
  }
}

void ReadNeoxRecompute(Reading* r) {
  Draft& draft = r->draft();
  const bool on = r->On("checkpoint_activations"), host = r->On("checkpoint_in_cpu");
  const bool parts = r->On("partition_activations");
  const std::int64_t each = r->Whole("checkpoint_num_layers").value_or(1);
  draft.SetText("training.recompute", on ? "full" : "none");
  if (!on) return;
  if (each > 1) draft.Set("training.recompute_layers", each);
  if (parts && draft.Whole("parallel.tp", 1) > 1) {
    r->Refuse("partition_activations",
              "checkpoints split over tensor-parallel ranks are not modelled");
  }
  if (host)
    draft.SetText("training.offload", draft.Has("training.offload") ? "all" : "activations");
}

// Top-level names may be written with dashes.
void Underscore(Node* root) {
  for (formats::Field& field : root->fields) std::ranges::replace(field.key, '-', '_');
}

}  // namespace

const Table& GptNeoxTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_gpt_neox.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsGptNeox(std::string_view text, const std::string& path) {
  if (!IsYaml(path)) return false;
  const auto key = [&](std::string name) {
    if (Contains(text, name + "\":") || Contains(text, "\n" + name + ":")) return true;
    std::ranges::replace(name, '_', '-');
    return Contains(text, name + "\":") || Contains(text, "\n" + name + ":");
  };
  return key("pipe_parallel_size") || key("model_parallel_size") ||
         (key("num_layers") && key("attention_config"));
}

Result<Imported> ReadGptNeox(const std::vector<File>& files, const Options& options) {
  const Tables tables = {&GptNeoxTable(), &DeepSpeedTable()};
  Reading reading(tables, options, files.front().path);
  std::vector<std::string> kinds;
  for (const File& file : files) {  // a later file wins
    ORRERY_ASSIGN_OR_RETURN(formats::Document document, ParseConfiguration(file));
    Underscore(&document.root);
    if (const Node* attention = document.root.Find("attention_config")) {
      kinds.clear();
      CollectKinds(*attention, &kinds);
    }
    AddLeaves(document, document.root, tables, &reading);
  }
  reading.Translate();
  Draft& draft = reading.draft();
  draft.SetText("framework", "megatron-deepspeed");
  draft.Assume(
      "framework: megatron-deepspeed stands for GPT-NeoX, which is built on the same parts");
  ReadNeoxShapes(&reading);
  ReadNeoxStages(&reading);
  ReadNeoxVocabulary(&reading);
  ReadKernels(kinds, &reading);
  ReadPrecision(&reading);
  ReadZero(&reading);
  ReadNeoxRecompute(&reading);
  Sources sources;
  sources.launch.gpus = reading.Whole("world_size").value_or(0);
  if (const auto nodes = reading.Whole("num_nodes"); nodes && *nodes > 0) {
    sources.launch.nodes = *nodes;
  }
  sources.launch.gpus_per_node = reading.Whole("num_gpus").value_or(0);
  SetBatch(sources, DeepSpeedBatch(&reading), &reading);
  for (const auto& [key, argument] :
       {std::pair("model.layers", "num_layers"), std::pair("model.hidden", "hidden_size"),
        std::pair("model.heads", "num_attention_heads"),
        std::pair("training.seq_len", "seq_length")}) {
    if (!draft.Has(key) && !reading.IsSet(key)) {
      reading.Missing(
          fmt::format("{} ({}): give it as another FILE, or --set {}=N", argument, key, key));
    }
  }
  return reading.Finish("gpt-neox");
}

}  // namespace orrery::recipes
