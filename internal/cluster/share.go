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

// OneAtATime is the share that documentation promises as the default.
func OneAtATime() Share { return Share{number: 1} }

// ParseShare reads a whole number from 1 on, such as "2", or a whole
// percentage from 1% to 100%, such as "25%". There is one way to write each.
func ParseShare(text string) (Share, error) {
	digits, percent := strings.CutSuffix(text, "%")

	number, err := strconv.Atoi(digits)
	if err != nil || number < 1 || strings.ContainsAny(digits[:1], "+0") || (percent && number > 100) {
		return Share{}, fmt.Errorf("%q is %w: want a whole number from 1 on, such as 2, or a percentage from 1%% to 100%%", text, ErrShare)
	}

	return Share{number: number, percent: percent}, nil
}

// Budget is how many workers of the cluster a share is, as [Share.Of] rounds it.
func (s Observation) Budget(share Share) int { return share.Of(len(s.Workers())) }

// Of is how many of so many workers a share is: percentages are rounded down, and it is
// one at least.
func (s Share) Of(workers int) int {
	if !s.percent {
		return max(s.number, 1)
	}

	return max(workers*s.number/100, 1)
}

// String is how [ParseShare] reads it.
func (s Share) String() string {
	if s.percent {
		return strconv.Itoa(s.number) + "%"
	}

	return strconv.Itoa(s.number)
}
