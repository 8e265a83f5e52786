#include "mstar/text/constrain/number_rules.h"

#include <algorithm>
#include <cmath>

namespace mstar {

namespace {

__extension__ using Wide = __int128;

constexpr int64_t kBeyond = 1'000'000'000'000'000'000;  // above every number of 17 digits

constexpr std::array<int64_t, 18> powers_of_ten() {
  std::array<int64_t, 18> powers{};
  powers[0] = 1;
  for (size_t index = 1; index < powers.size(); ++index) {
    powers[index] = 10 * powers[index - 1];
  }
  return powers;
}

constexpr auto kPowers = powers_of_ten();

// floor(value * 10^fraction), exactly; cut to ±kBeyond. `exact`: nothing was rounded.
int64_t scaled_floor(double value, int fraction, bool& exact) {
  exact = true;
  if (!(std::abs(value) < static_cast<double>(kBeyond))) {
    exact = false;
    return value > 0 ? kBeyond : -kBeyond;
  }
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // value = whole * 2^(exponent - 53)
  const auto whole = static_cast<Wide>(std::llround(std::ldexp(mantissa, 53)));
  exponent -= 53;
  Wide product = whole * kPowers[static_cast<size_t>(fraction)];
  if (exponent >= 0) {
    product <<= exponent;  // |value| < 2^60: at most 7 bits
  } else if (exponent < -126) {
    exact = product == 0;
    product = product < 0 ? -1 : 0;
  } else {
    const Wide divisor = Wide{1} << -exponent;
    const Wide rest = ((product % divisor) + divisor) % divisor;
    exact = rest == 0;
    product = (product - rest) / divisor;
  }
  const Wide most = kBeyond;
  return static_cast<int64_t>(std::clamp(product, -most, most));
}

}  // namespace

NumberRules::NumberRules(bool integer, const Bounds& bounds)
    : integer_(integer), bounded_(bounds.minimum.has_value() || bounds.maximum.has_value()) {
  for (int fraction = 0; fraction <= kMaxFraction; ++fraction) {
    const auto index = static_cast<size_t>(fraction);
    bool exact = false;
    low_[index] = -kBeyond;
    high_[index] = kBeyond;
    if (bounds.minimum) {
      const int64_t floor = scaled_floor(*bounds.minimum, fraction, exact);
      low_[index] = exact && !bounds.exclusive_minimum ? floor : floor + 1;
      if (*bounds.minimum <= -static_cast<double>(kBeyond)) {
        low_[index] = -kBeyond;
      }
    }
    if (bounds.maximum) {
      const int64_t floor = scaled_floor(*bounds.maximum, fraction, exact);
      high_[index] = exact && bounds.exclusive_maximum ? floor - 1 : floor;
    }
  }
}

bool NumberRules::overlaps(bool negative, int64_t low, int64_t high, int fraction) const {
  if (negative) {
    const int64_t least = -high;
    high = -low;
    low = least;
  }
  const auto index = static_cast<size_t>(fraction);
  return std::max(low, low_[index]) <= std::min(high, high_[index]);
}

bool NumberRules::is_open(const State& state) const {
  const auto digits = static_cast<int64_t>(state.digits);
  const int most_fraction = integer_ ? 0 : kMaxFraction;
  if (state.phase == State::kPoint || state.phase == State::kFraction) {
    for (int fraction = std::max<int>(1, state.num_fraction);
         fraction <= most_fraction && state.num_digits + fraction <= kMaxDigits;
         ++fraction) {
      const int64_t scale = kPowers[static_cast<size_t>(fraction - state.num_fraction)];
      if (overlaps(state.negative, digits * scale, (digits + 1) * scale - 1, fraction)) {
        return true;
      }
    }
    return false;
  }
  const bool begun = state.num_digits > 0;
  const int most_more = state.phase == State::kZero ? 0 : kMaxDigits - state.num_digits;
  for (int more = begun ? 0 : 1; more <= most_more; ++more) {
    const int used = state.num_digits + more;
    for (int fraction = 0; fraction <= most_fraction && used + fraction <= kMaxDigits; ++fraction) {
      const int64_t scale = kPowers[static_cast<size_t>(more + fraction)];
      if (overlaps(state.negative, digits * scale, (digits + 1) * scale - 1, fraction)) {
        return true;
      }
    }
  }
  return false;
}

// An exponent begins; how many digits stood before it no longer matters.
bool NumberRules::step_exponent(State& state, uint8_t byte) const {
  if ((byte != 'e' && byte != 'E') || integer_ || bounded_) {
    return false;
  }
  state = State{.phase = State::kE, .negative = state.negative};
  return true;
}

bool NumberRules::step_unchecked(State& state, uint8_t byte) const {
  const bool is_digit = byte >= '0' && byte <= '9';
  const int most_digits = bounded_ ? kMaxDigits : integer_ ? 18 : 15;
  switch (state.phase) {
    case State::kStart:
      if (byte == '-') {
        state.negative = true;
        state.phase = State::kMinus;
        return true;
      }
      [[fallthrough]];
    case State::kMinus:
      if (!is_digit) {
        return false;
      }
      state.phase = byte == '0' ? State::kZero : State::kDigits;
      state.num_digits = 1;
      break;
    case State::kZero:
    case State::kDigits:
      if (is_digit && state.phase == State::kDigits && state.num_digits < most_digits) {
        ++state.num_digits;
        break;
      }
      if (byte == '.' && !integer_) {
        state.phase = State::kPoint;
        return true;
      }
      return step_exponent(state, byte);
    case State::kPoint:
    case State::kFraction:
      if (is_digit && state.num_fraction < kMaxFraction &&
          (!bounded_ || state.num_digits + state.num_fraction < kMaxDigits)) {
        state.phase = State::kFraction;
        ++state.num_fraction;
        break;
      }
      return state.phase == State::kFraction && step_exponent(state, byte);
    case State::kE:
      if (byte == '+' || byte == '-') {
        state.phase = State::kSign;
        return true;
      }
      [[fallthrough]];
    case State::kSign:
      if (!is_digit) {
        return false;
      }
      state.phase = State::kExponent;
      state.num_fraction = 1;
      return true;
    case State::kExponent:
      if (!is_digit || state.num_fraction >= 2) {
        return false;
      }
      ++state.num_fraction;
      return true;
    default: return false;
  }
  if (bounded_) {
    state.digits = 10 * state.digits + (byte - '0');
  }
  return true;
}

bool NumberRules::step(State& state, uint8_t byte) const {
  State next = state;
  if (!step_unchecked(next, byte) || (bounded_ && !is_open(next))) {
    return false;
  }
  state = next;
  return true;
}

bool NumberRules::may_end(const State& state) const {
  switch (state.phase) {
    case State::kZero:
    case State::kDigits:
    case State::kFraction: break;
    case State::kExponent: return true;
    default: return false;
  }
  const auto digits = static_cast<int64_t>(state.digits);
  return !bounded_ || overlaps(state.negative, digits, digits, state.num_fraction);
}

bool NumberRules::is_possible() const {
  State minus;
  minus.phase = State::kMinus;
  minus.negative = true;
  return !bounded_ || is_open(State()) || is_open(minus);
}

}  // namespace mstar
