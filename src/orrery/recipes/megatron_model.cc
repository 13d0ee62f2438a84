// Megatron's model: what several arguments say together of layers, attention, experts, positions
// and vocabulary. Source: NVIDIA/Megatron-LM, megatron/training/arguments.py and
// megatron/core/transformer/transformer_config.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "orrery/base/text.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/tokenizers.h"

namespace orrery::recipes {
namespace {

void ReadFeedForward(Reading* r) {
  Draft& draft = r->draft();
  const bool swiglu = r->On("--swiglu"), quick = r->On("--quick-geglu");
  const bool squared = r->On("--squared-relu");
  draft.Set("model.activation", std::string(swiglu || quick ? "swiglu"
                                            : squared       ? "squared_relu"
                                                            : "gelu"));
  const std::int64_t hidden = draft.Whole("model.hidden", 0);
  const auto ffn = r->Whole("--ffn-hidden-size");
  const std::int64_t width = ffn ? *ffn : swiglu ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden;
  if (width > 0) draft.Set("model.ffn_hidden", width);
  if (r->Has("--activation-func-clamp-value") && draft.Has("model.experts")) {
    draft.Set("model.clamped_activation", true);
  }
  const bool unfused = swiglu ? r->On("--no-bias-swiglu-fusion") : r->On("--no-bias-gelu-fusion");
  if (unfused) draft.Set("framework_options.fused_bias_activation", false);
}

// Megatron has one variant that is built here; a layer of it may run without an indexer of its own.
void ReadSparseAttention(Reading* r) {
  const std::string variant = r->Text("--experimental-attention-variant");
  const std::int64_t each = r->Whole("--dsa-indexer-topk-freq").value_or(1);
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"--dsa-indexer-n-heads", "model.index_n_heads"},
      {"--dsa-indexer-head-dim", "model.index_head_dim"},
      {"--dsa-indexer-topk", "model.index_topk"}};
  for (const auto& [argument, key] : kKeys) {
    const auto value = r->Whole(argument);
    if (variant == "dsa" && value) r->draft().Set(key, *value);
  }
  if (variant.empty() || variant == "None") return;
  if (variant != "dsa") {
    return r->Refuse("--experimental-attention-variant",
                     "this attention has no cost model; dsa has");
  }
  if (each > 1) {
    r->Refuse("--dsa-indexer-topk-freq", "layers that share an index are not modelled");
  }
}

void ReadAttentionShape(Reading* r) {
  Draft& draft = r->draft();
  if (r->On("--group-query-attention")) {
    if (const auto groups = r->Whole("--num-query-groups")) draft.Set("model.kv_heads", *groups);
  } else {
    r->Find("--num-query-groups");  // counts only with the flag
  }
  // BigCode's: one head of keys and values for all.
  if (r->Text("--attention-head-type") == "multiquery") {
    draft.Set("model.kv_heads", std::int64_t{1});
  }
  const bool bias = !r->On("--disable-bias-linear"), qkv = r->On("--add-qkv-bias");
  draft.Set("model.attention_bias", bias || qkv);
  draft.Set("model.mlp_bias", bias);
  if (qkv && !bias) draft.Set("model.projection_bias", false);
  const std::string latent[] = {"--q-lora-rank", "--kv-lora-rank", "--qk-head-dim",
                                "--qk-pos-emb-head-dim", "--v-head-dim"};
  const std::string keys[] = {"model.q_lora_rank", "model.kv_lora_rank", "model.qk_nope_head_dim",
                              "model.qk_rope_head_dim", "model.v_head_dim"};
  const bool is_latent = r->On("--multi-latent-attention");
  for (std::size_t i = 0; i < std::size(latent); ++i) {
    const auto value = r->Whole(latent[i]);
    if (is_latent && value && *value > 0) draft.Set(keys[i], *value);
  }
  ReadSparseAttention(r);
}

void ReadPositions(Reading* r) {
  Draft& draft = r->draft();
  const std::string type = r->Text("--position-embedding-type");
  const bool rotary = type == "rope" || type == "yarn" || type == "mrope" ||
                      r->On("--use-rotary-position-embeddings");
  // ALiBi is a bias inside the attention kernel.
  const bool none = type == "none" || type == "alibi" || r->On("--no-position-embedding");
  if (type == "relative") {
    r->Refuse("--position-embedding-type", "relative positions' bias in attention is not modelled");
  }
  draft.Set("model.position", std::string(rotary ? "rotary" : none ? "none" : "learned"));
  if (type == "yarn") draft.Set("model.scaled_rotary", true);
  if (!rotary) draft.Drop("model.scaled_rotary");  // --no-rope-fusion of no rotary embedding
  // (left, right): keys before a query, itself not counted.
  const std::vector<std::int64_t> window = [&] {
    std::string text;
    for (const std::string& part : r->Texts("--window-size")) text += part + " ";
    std::ranges::replace(text, ',', ' ');
    std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == '[' || c == ']'; });
    std::vector<std::int64_t> numbers;
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) {
      std::int64_t value = 0;
      const auto [stop, error] = std::from_chars(at, end, value);
      if (error == std::errc()) numbers.push_back(value);
      at = error == std::errc() ? stop : at + 1;
    }
    return numbers;
  }();
  const std::string every = r->Text("--window-attn-skip-freq");
  if (window.empty() || window[0] < 0) return;
  draft.Set("model.window", window[0] + 1);
  if (every.empty()) return;
  if (every.find('[') == std::string::npos) {
    draft.SetText("model.full_every", every);
    draft.Set("model.full_every", every);
    return;
  }
  const auto list = ParsePythonList(every);
  const auto full =
      list ? std::ranges::find(*list, 0) : std::vector<std::int64_t>::const_iterator();
  const std::int64_t period = list ? full - list->begin() + 1 : 0;
  bool regular = list.has_value() && full != list->end();
  for (std::size_t i = 0; regular && i < list->size(); ++i) {
    regular = ((static_cast<std::int64_t>(i) + 1) % period == 0) == ((*list)[i] == 0);
  }
  if (!regular) {
    return r->Refuse("--window-attn-skip-freq",
                     "windows are modelled in all but the last of every so many layers");
  }
  draft.Set("model.full_every", period);
}

void ReadVocabulary(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t multiple =
      r->Whole("--make-vocab-size-divisible-by").value_or(128) * draft.Whole("parallel.tp", 1);
  auto padded = r->Whole("--padded-vocab-size");
  if (!padded) padded = r->Whole("--pad-vocab-size-to");
  auto vocab = r->Whole("--vocab-size");
  std::string type = r->Text("--tokenizer-type"), model = r->TextIfKnown("--tokenizer-model");
  // Names that forks give it, and what Pai-Megatron-Patch adds to its tokens.
  if (model.empty()) model = r->TextIfKnown("--tokenizer-name-or-path");
  if (model.empty()) model = r->TextIfKnown("--patch-tokenizer-type");
  const bool merges = r->Has("--merge-file");
  const std::int64_t extra =
      r->Whole("--vocab-extra-ids").value_or(0) + r->Whole("--extra-vocab-size").value_or(0);
  const bool pads = !r->On("--no-pad-vocab-size");
  if (!padded && !vocab) {
    // pretrain_gpt.py and pretrain_bert.py bring a type of their own.
    if (type.empty() && merges) type = "GPT2BPETokenizer";
    if (type.empty() && draft.Has("model.encoder")) type = "BertWordPieceLowerCase";
    const std::string name = type == "Llama2Tokenizer"                ? "llama-2"
                             : type == "GPT2BPETokenizer"             ? "gpt2"
                             : type.starts_with("BertWordPieceLower") ? "bert-uncased"
                             : type.starts_with("BertWordPiece")      ? "bert-cased"
                                                                      : model;
    if (const Tokenizer* found = FindTokenizer(name)) {
      vocab = found->vocab;
      draft.Assume(fmt::format("model.vocab: {} of the tokenizer {} ({})", found->vocab,
                               found->name, found->source));
    }
  }
  if (r->IsSet("model.vocab")) return;
  if (!padded && !vocab) {
    return r->Missing(fmt::format(
        "how large its vocabulary is{}: give --set model.vocab=N",
        model.empty() ? "" : fmt::format(" (of the tokenizer {})", Printable(model, 60))));
  }
  std::int64_t size = padded.value_or(vocab.value_or(0) + extra);
  if (!padded && pads) size = RoundUp(size, multiple);
  draft.Set("model.vocab", size);
}

// What an expert takes at most, where nothing says how tokens fall: as if they fell evenly.
void ReadCapacity(Draft* draft) {
  const std::string capacity(draft->Text("training.moe_capacity_factor"));
  if (capacity.empty()) return;
  if (draft->Has("training.moe_pad_to_capacity")) {  // so many rows, whatever falls
    draft->Set("training.moe_imbalance", capacity);
    return draft->Drop("training.moe_capacity_factor");
  }
  draft->Set("training.moe_routing", std::string("drawn-zipf"));
  draft->Set("training.moe_zipf", std::int64_t{0});
  draft->Assume("experts are taken as evenly loaded (training.moe_zipf: 0)");
}

// A rank's budget of tokens, over what it gets of evenly loaded experts.
void ReadRankBudget(Reading* r) {
  constexpr std::string_view kArgument = "--moe-expert-rank-capacity-factor";
  if (r->On("--moe-paged-stash")) {
    r->draft().Assume(
        "--moe-paged-stash: what experts keep is counted as it is, not as the pages of fixed "
        "buffers that hold it");
  }
  const double factor = r->Real(kArgument, 0);
  if (factor == 0) return;
  if (factor < 1) {
    return r->Refuse(kArgument,
                     "an expert rank that drops tokens beyond a budget is not modelled; "
                     "moe_capacity_factor is by expert");
  }
  r->draft().Assume(fmt::format("{} {}: of experts taken as evenly loaded no rank drops tokens",
                                kArgument, factor));
}

void ReadExperts(Reading* r) {
  Draft& draft = r->draft();
  ReadRankBudget(r);
  const std::string freq = r->Text("--moe-layer-freq");
  const std::string type = r->Text("--moe-token-dispatcher-type");
  const std::string backend = r->Text("--moe-flex-dispatcher-backend");
  const bool deepep = r->On("--moe-enable-deepep");
  const bool recomputes = r->On("--moe-layer-recompute");
  if (!draft.Has("model.experts")) {
    for (const char* key :
         {"model.expert_top_k", "model.expert_ffn_hidden", "model.shared_ffn_hidden",
          "training.moe_routing", "training.moe_shared_overlap", "training.moe_comm_overlap",
          "training.moe_delayed_weights", "training.moe_capacity_factor",
          "training.moe_pad_to_capacity", "framework_options.moe_fused_permute",
          "framework_options.moe_fused_router", "parallel.ep", "parallel.etp",
          "framework_options.moe_separate_padding", "model.expert_latent"}) {
      draft.Drop(key);
    }
    return;
  }
  if (!draft.Has("model.expert_top_k")) draft.Set("model.expert_top_k", std::int64_t{2});
  if (!draft.Has("model.expert_ffn_hidden")) {
    draft.Set("model.expert_ffn_hidden", draft.Whole("model.ffn_hidden", 0));
  }
  // alltoall_seq is the older form, which gathers a tensor-parallel group's tokens itself.
  draft.SetText("training.moe_dispatcher", type == "flex"           ? (deepep ? "deepep" : backend)
                                           : type == "alltoall_seq" ? "alltoall"
                                                                    : type);
  if (type == "flex" && !deepep && backend != "deepep" && backend != "hybridep") {
    r->Refuse("--moe-flex-dispatcher-backend", "this dispatcher is not modelled");
  }
  for (const char* key : {"moe_fused_permute", "moe_fused_router"}) {
    const std::string name = fmt::format("framework_options.{}", key);
    if (!draft.Has(name)) draft.Set(name, false);
  }
  if (!draft.Has("training.moe_routing")) ReadCapacity(&draft);
  if (recomputes) {
    draft.Set("training.recompute", std::string("selective"));
    draft.Set("training.recompute_modules", std::string("moe"));
  }
  if (freq.empty() || freq == "1") return;
  const std::int64_t layers = draft.Whole("model.layers", 0);
  std::optional<std::vector<std::int64_t>> list = ParsePythonList(freq);
  if (freq.find('[') == std::string::npos) {
    const auto every = r->Whole("--moe-layer-freq");
    if (!every || *every < 1) return;
    // Megatron's first of every so many has experts, ours the last: as many where it divides.
    if (layers % *every != 0) {
      return r->Refuse("--moe-layer-freq",
                       fmt::format("{} does not divide {} layers", *every, layers));
    }
    draft.Set("model.expert_every", *every);
    draft.Assume(
        fmt::format("--moe-layer-freq {}: experts in the last of every {} layers, not in "
                    "the first",
                    *every, *every));
    return;
  }
  const auto front = list ? std::ranges::find(*list, 1) - list->begin() : 0;
  const bool regular =
      list && static_cast<std::int64_t>(list->size()) == layers &&
      std::all_of(list->begin() + front, list->end(), [](auto n) { return n == 1; });
  if (!regular) {
    return r->Refuse("--moe-layer-freq",
                     fmt::format("layers without experts are modelled at the front of all {}, or "
                                 "every so many",
                                 layers));
  }
  if (front > 0) draft.Set("model.first_dense_layers", static_cast<std::int64_t>(front));
}

// Layers that shares alone say: attention evenly spread between Mamba, and MLPs in Mamba's places.
std::string LettersOfShares(std::int64_t layers, double attention, double mlp) {
  const auto count = [&](double share) { return std::lrint(static_cast<double>(layers) * share); };
  std::string letters(static_cast<std::size_t>(layers), 'M');
  const auto spread = [&](char letter, double between) {
    double left = between;
    for (char& c : letters) {
      if (c != 'M') continue;
      if (left >= 0.5) {
        left -= 1;
      } else {
        c = letter;
        left += between;
      }
    }
  };
  const std::int64_t heads = count(attention), mlps = count(mlp);
  const auto others = static_cast<double>(layers - heads);
  spread('*', others / static_cast<double>(heads + 1));
  if (mlps > 0) spread('-', (others - static_cast<double>(mlps)) / static_cast<double>(mlps));
  return letters;
}

// Whether the code of the layers is that of hybrids, whose layers are Mamba unless more is said.
bool ReadSpec(Reading* r) {
  const std::vector<std::string> spec = r->Texts("--spec");
  const auto says = [&](std::string_view word) {
    return std::ranges::any_of(spec, [&](const std::string& one) { return Contains(one, word); });
  };
  if (says("primus.backends.megatron.core.models.hybrid")) {
    r->Refuse("--spec",
              "Primus' layers of KDA, gated DeltaNet or Mamba beside latent attention have no cost "
              "model");
    return false;
  }
  return says("mamba_stack_spec") || says("hybrid_stack_spec");
}

// The pattern of a hybrid whose arguments say shares of its layers, or nothing: Mamba alone.
std::string SharedPattern(bool named, Reading* r) {
  const double attention = r->Real("--hybrid-attention-ratio", 0);
  const double mlp = r->Real("--hybrid-mlp-ratio", 0);
  const bool stack = ReadSpec(r), says = r->On("--is-hybrid-model");
  const bool hybrid = (stack || says) && !named;
  const std::int64_t layers = r->draft().Whole("model.layers", 0);
  if (!(attention >= 0 && mlp >= 0 && attention + mlp <= 1)) {
    r->Refuse("--hybrid-attention-ratio",
              "shares of the layers are 0 to 1, and at most 1 together");
    return "";
  }
  // More would be refused by name later.
  constexpr std::int64_t kMostLayers = 32'767;
  const bool shares = attention > 0 || mlp > 0;
  if (shares && named && layers < 1) {
    r->Refuse("--hybrid-attention-ratio", "say the layers as --hybrid-layer-pattern");
  }
  if ((!shares && !hybrid) || layers < 1 || layers > kMostLayers) return "";
  return LettersOfShares(layers, attention, mlp);
}

// A letter a layer; stages between bars, further tokens' modules behind slashes.
void ReadHybrid(bool named, Reading* r) {
  Draft& draft = r->draft();
  std::string pattern = r->Text("--hybrid-layer-pattern");
  const std::string_view argument =
      pattern.empty() ? "--hybrid-override-pattern" : "--hybrid-layer-pattern";
  const std::string older = r->Text("--hybrid-override-pattern");
  const std::string further = r->Text("--mtp-hybrid-override-pattern");
  if (pattern.empty()) pattern = older;
  const auto heads = r->Whole("--mamba-num-heads"), head_dim = r->Whole("--mamba-head-dim");
  const auto groups = r->Whole("--mamba-num-groups");
  const std::string shared = SharedPattern(named, r);
  if (pattern.empty()) pattern = shared;
  if (pattern.empty()) {
    draft.Drop("model.mamba_state");
    return;
  }
  std::erase_if(pattern, [](char c) { return c == '"' || c == '\'' || c == ' '; });
  const std::size_t slash = pattern.find('/');
  const auto modules = static_cast<std::int64_t>(std::ranges::count(pattern, '/'));
  if (modules > 0 && !draft.Has("model.mtp_layers")) draft.Set("model.mtp_layers", modules);
  pattern = pattern.substr(0, slash);
  std::vector<std::int64_t> chunks(1);
  std::string letters;
  for (const char c : pattern) {
    if (c == '|') {
      chunks.push_back(0);
    } else {
      letters += c;
      ++chunks.back();
    }
  }
  if (const std::size_t odd = letters.find_first_not_of("M*-E"); odd != std::string::npos) {
    return r->Refuse(argument, fmt::format("a layer '{}' is not modelled; M, *, - and E are",
                                           Printable(letters.substr(odd, 1))));
  }
  draft.SetText("model.pattern", letters);
  draft.Set("model.layers", static_cast<std::int64_t>(letters.size()));
  if (!draft.Has("model.mamba_state")) draft.Set("model.mamba_state", std::int64_t{128});
  draft.Set("model.mamba_head_dim", head_dim.value_or(64));
  draft.Set("model.mamba_groups", groups.value_or(8));
  draft.Set("model.mamba_heads",
            heads ? *heads : 2 * draft.Whole("model.hidden", 0) / head_dim.value_or(64));
  const std::int64_t pp = draft.Whole("parallel.pp", 1);
  if (chunks.size() > 1 && static_cast<std::int64_t>(chunks.size()) % pp == 0) {
    const std::int64_t vpp = static_cast<std::int64_t>(chunks.size()) / pp;
    if (vpp > 1) draft.Set("parallel.vpp", vpp);
    if (std::ranges::any_of(chunks, [&](auto n) { return n != chunks[0]; })) {
      draft.Set("parallel.layers_per_stage", fmt::format("[{}]", fmt::join(chunks, ", ")));
    }
  }
}

// An encoder with a decoder (pretrain_t5.py): what says layers and tokens alone is the encoder's.
void ReadEncoder(Reading* r) {
  Draft& draft = r->draft();
  const auto layers = r->Whole("--decoder-num-layers");
  const auto length = r->Whole("--decoder-seq-length");
  if (!layers && !length && !draft.Has("model.encoder_layers")) return;
  const std::int64_t encoder = draft.Whole("model.layers", 0);
  draft.Set("model.encoder_layers", encoder);
  draft.Set("model.layers", encoder + layers.value_or(encoder));
  draft.Set("model.encoder_len", draft.Whole("training.seq_len", 0));
  if (length) draft.Set("training.seq_len", *length);
}

void ReadDropout(Reading* r) {
  const double hidden = r->Real("--hidden-dropout", 0.1);
  const double attention = r->Real("--attention-dropout", 0.1);
  const double dropout = std::max(hidden, attention);
  r->draft().Set("model.dropout", fmt::format("{}", dropout));
}

}  // namespace

void ReadMegatronModel(bool named, Reading* r) {
  ReadFeedForward(r);
  ReadAttentionShape(r);
  ReadPositions(r);
  ReadHybrid(named, r);
  ReadExperts(r);
  ReadEncoder(r);
  ReadDropout(r);
  if (!named) ReadVocabulary(r);
}

}  // namespace orrery::recipes
