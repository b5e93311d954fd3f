// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Share is a number of workers, or a percentage of them. The zero value is not
// a valid share.
type Share struct {
	number  int
	percent bool
}

// ErrShare is wrapped by every error of [ParseShare].
var ErrShare = errors.New("not a number of workers")

// OneAtATime returns the share that the documentation promises as the default.
func OneAtATime() Share { return Share{number: 1} }

// ParseShare reads a whole number from 1 on, such as "2", or a whole percentage from 1% to 100%, such as "25%".
// Each has only one spelling.
func ParseShare(text string) (Share, error) {
	digits, percent := strings.CutSuffix(text, "%")

	number, err := strconv.Atoi(digits)
	if err != nil || number < 1 || strings.ContainsAny(digits[:1], "+0") || (percent && number > 100) {
		return Share{}, fmt.Errorf("%q is %w: want a whole number from 1 on, such as 2, or a percentage from 1%% to 100%%", text, ErrShare)
	}

	return Share{number: number, percent: percent}, nil
}

// Budget returns how many workers of the cluster a share is, rounded as in [Share.Of].
func (s Observation) Budget(share Share) int { return share.Of(s.CountWorkers()) }

// Of returns how many of the given number of workers a share is: percentages are rounded down, and the result is
// at least one.
func (s Share) Of(workers int) int {
	if !s.percent {
		return max(s.number, 1)
	}

	return max(workers*s.number/100, 1)
}

// String returns the share as [ParseShare] reads it.
func (s Share) String() string {
	if s.percent {
		return strconv.Itoa(s.number) + "%"
	}

	return strconv.Itoa(s.number)
}
