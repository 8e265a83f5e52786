#pragma once

#include <memory>
#include <string_view>

#include "mstar/base/json.h"
#include "mstar/resources/token_rules.h"
#include "mstar/text/constrain/token_guide.h"

namespace mstar {

// CurrentForwardPassInfo::values: the rules of the answer, an AnswerRules; absent without any.
// Nodes that draw tokens give them to their sampler.
inline constexpr std::string_view kAnswerRules = "answer_rules";
using AnswerRules = std::shared_ptr<const TokenRulesSource>;

// What the parameter "response_format" asks of an answer, as the OpenAI API writes it: null for
// none or {"type": "text"}; rules for {"type": "json_object"} (any object) and for
//   {"type": "json_schema", "json_schema": {"name", "schema", "strict", "description"}}.
// A schema is kept to whether it is strict or not. Throws Error naming the keyword that is wrong or
// that is not read here, and with ignore_eos, for a document ends. Any thread.
AnswerRules answer_rules(const Json& parameters, TokenGrammars& grammars);

}  // namespace mstar
