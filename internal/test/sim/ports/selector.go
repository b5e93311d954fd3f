// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"slices"
	"strings"
)

// selector is a label selector: all of its terms have to hold.
type selector []term

// term is "key", "!key", "key in (values)" or "key notin (values)"; "key=value" is
// one of the last two with one value.
type term struct {
	key    string
	negate bool
	// values is nil where the label itself matters.
	values []string
}

// parseSelector reads a selector in the notation of the Kubernetes API.
func parseSelector(text string) (selector, error) {
	var read selector

	for _, part := range splitTerms(text) {
		one, err := parseTerm(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}

		read = append(read, one)
	}

	return read, nil
}

// splitTerms splits at the commas outside parentheses.
func splitTerms(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}

	var (
		terms        []string
		depth, start int
	)

	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			terms = append(terms, text[start:i])
			start = i + 1
		}
	}

	return append(terms, text[start:])
}

func parseTerm(text string) (term, error) {
	bad := fmt.Errorf("unable to parse the selector at %q", text)

	if key, list, found := strings.Cut(text, "("); found {
		words := strings.Fields(key)
		list, closed := strings.CutSuffix(list, ")")

		if !closed || len(words) != 2 || words[1] != "in" && words[1] != "notin" {
			return term{}, bad
		}

		values := strings.Split(list, ",")
		for i, value := range values {
			values[i] = strings.TrimSpace(value)
		}

		return term{key: words[0], negate: words[1] == "notin", values: values}, nil
	}

	for _, operator := range []string{"!=", "==", "="} {
		if key, value, found := strings.Cut(text, operator); found {
			return checked(term{key: strings.TrimSpace(key), negate: operator == "!=", values: []string{strings.TrimSpace(value)}}, bad)
		}
	}

	key, negate := strings.CutPrefix(text, "!")

	return checked(term{key: key, negate: negate}, bad)
}

// checked refuses a term without a key, or with one that is no word.
func checked(read term, bad error) (term, error) {
	if read.key == "" || strings.ContainsAny(read.key, " !=()") {
		return term{}, bad
	}

	return read, nil
}

func (s selector) matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(t term) bool {
		value, has := labels[t.key]
		if t.values == nil {
			return has == t.negate
		}

		return (has && slices.Contains(t.values, value)) == t.negate
	})
}
