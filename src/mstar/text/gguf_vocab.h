#pragma once

// Tokenizers from the vocabulary that a GGUF file carries in its metadata. The file is read
// elsewhere; this takes the arrays as they stand there.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/text/tokenizer.h"

namespace mstar {

// Fields of "tokenizer.ggml.*"; ids are -1 where the file names none.
struct GgufVocab {
  std::string model;                 // model: "gpt2", "llama", "bert" or "t5"
  std::string pre;                   // pre: name of the word pattern of "gpt2"; "" is "default"
  std::vector<std::string> tokens;   // tokens, by id
  std::vector<float> scores;         // scores, by id; "llama" and "t5" need them
  std::vector<int32_t> token_types;  // token_type, by id: 1 normal, 2 unknown, 3 control, 4 user
                                     // defined, 5 unused, 6 byte; may be empty
  std::vector<std::string> merges;   // merges: "left right"; "gpt2" needs them
  int32_t bos_id = -1;               // bos_token_id; BERT's [CLS] too
  int32_t eos_id = -1;               // eos_token_id
  int32_t unk_id = -1;               // unknown_token_id
  int32_t sep_id = -1;               // seperator_token_id: the field is spelt so
  int32_t cls_id = -1;               // cls_token_id
  // -1: not in the file, the model kind decides; else 0 or 1.
  int add_bos = -1;           // add_bos_token
  int add_eos = -1;           // add_eos_token
  int add_space_prefix = -1;  // add_space_prefix
  bool remove_extra_whitespaces = false;
  std::string precompiled_charsmap;  // bytes of SentencePiece's character map; may be empty
};

// Throws Error(kInvalidArgument) when arrays do not fit together or ids are out of range,
// Error(kUnsupported) for a model kind or pattern name that is not known.
std::shared_ptr<const Tokenizer> make_gguf_tokenizer(const GgufVocab& vocab);

// The word patterns that a name of GGUF stands for.
// `ignore_merges`: a word that is a token is that token.
struct GgufPattern {
  std::vector<std::string> patterns;  // applied one after the other
  bool ignore_merges = false;
};

// Null when the name is not known.
const GgufPattern* find_gguf_pattern(const std::string& name);

}  // namespace mstar
