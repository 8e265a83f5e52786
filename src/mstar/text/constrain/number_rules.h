#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace mstar {

// A JSON number read byte by byte, with bounds of its digits so that it ends, and with bounds of
// its value where the schema has them. Every state that is reached can be finished within both.
//
// Without bounds of the value: up to 18 digits for integers; for others up to 15 before the point,
// 15 behind it, and an exponent of two digits. With bounds: no exponent, 17 digits in all, at most
// 15 behind the point; compared exactly with the bounds, which are doubles.
class NumberRules {
 public:
  struct Bounds {
    std::optional<double> minimum;
    std::optional<double> maximum;
    bool exclusive_minimum = false;
    bool exclusive_maximum = false;
  };

  NumberRules(bool integer, const Bounds& bounds);

  // Where a number stands; all zero before its first byte. Plain data, part of an automaton's
  // state.
  struct State {
    enum Phase : uint8_t {
      kStart,
      kMinus,
      kZero,
      kDigits,
      kPoint,
      kFraction,
      kE,
      kSign,
      kExponent
    };

    uint8_t phase = kStart;
    uint8_t num_digits = 0;    // before the point
    uint8_t num_fraction = 0;  // behind it; of the exponent in kExponent
    bool negative = false;
    uint64_t digits = 0;  // all digits as one number; only kept with bounds

    friend bool operator==(const State&, const State&) = default;
  };

  // Moves on by one byte; false and unchanged where no number goes on so.
  bool step(State& state, uint8_t byte) const;

  // Whether the number may end here.
  bool may_end(const State& state) const;

  // Whether there is a number at all: some bounds leave none.
  bool is_possible() const;

 private:
  static constexpr int kMaxDigits = 17;    // with bounds, in all
  static constexpr int kMaxFraction = 15;  // behind the point

  bool is_open(const State& state) const;  // whether the digits can go on to a value in bounds
  bool overlaps(bool negative, int64_t low, int64_t high, int fraction) const;
  bool step_exponent(State& state, uint8_t byte) const;
  bool step_unchecked(State& state, uint8_t byte) const;

  bool integer_;
  bool bounded_;
  // The bounds times 10^f, rounded inwards, for f digits behind the point.
  std::array<int64_t, kMaxFraction + 1> low_{};
  std::array<int64_t, kMaxFraction + 1> high_{};
};

}  // namespace mstar
