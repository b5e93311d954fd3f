// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// proven lets requests pass and remembers which of them the API server has
// carried out. One that it refuses later for want of a permission fails as if
// there had been no answer: an API server that has just started, as each of them
// does while its control plane is upgraded, serves before it has read who may do
// what. A permission that was really taken away shows when the wait for it has
// come to its end.
type proven struct {
	http.RoundTripper

	decoder runtime.Decoder

	mu      sync.Mutex
	allowed map[string]bool
}

func newProven(next http.RoundTripper, decoder runtime.Decoder) *proven {
	return &proven{RoundTripper: next, decoder: decoder, allowed: map[string]bool{}}
}

// refusalMost is how much of a refusal is read, in bytes.
const refusalMost = 64 << 10

// RoundTrip implements [http.RoundTripper].
func (p *proven) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := p.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}

	asked := request.Method + " " + kindOf(request.URL.Path)

	p.mu.Lock()
	before := p.allowed[asked]

	if answer.StatusCode < http.StatusMultipleChoices {
		p.allowed[asked] = true
	}
	p.mu.Unlock()

	if answer.StatusCode != http.StatusForbidden || !before {
		return answer, nil
	}

	return p.refused(answer)
}

// kindOf is what a path is about, as permissions have it: without the name of the
// object. Pods are many and in many namespaces; who may evict one may evict all, or
// the drain has ended long before.
func kindOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")

	group := 3
	if parts[0] == "api" {
		group = 2
	}

	if len(parts) <= group {
		return path
	}

	kind, rest := parts[:group], parts[group:]

	if rest[0] == "namespaces" && len(rest) > 2 {
		if rest[2] != "pods" {
			kind = append(slices.Clone(kind), rest[1])
		}

		rest = rest[2:]
	}

	kind = append(slices.Clone(kind), rest[0])
	if len(rest) > 1 {
		// To read one and to list all are two permissions.
		kind = append(append(kind, "*"), rest[2:]...)
	}

	return strings.Join(kind, "/")
}

// refused reads why, as an admission webhook answers with the same code and means
// something else.
func (p *proven) refused(answer *http.Response) (*http.Response, error) {
	text, err := io.ReadAll(io.LimitReader(answer.Body, refusalMost))
	if err != nil {
		_ = answer.Body.Close()

		return nil, err
	}

	why := "no reason given"
	if decoded, _, err := p.decoder.Decode(text, nil, nil); err == nil {
		if status, ok := decoded.(*metav1.Status); ok {
			why = status.Message
		}
	}

	if deniedByAdmission(why) {
		answer.Body = reread{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body}

		return answer, nil
	}

	_ = answer.Body.Close()

	return nil, fmt.Errorf("the API server refuses what it has allowed before, as one does that has just started: %s (HTTP %d)", why, answer.StatusCode)
}

// reread is a body whose beginning has been read.
type reread struct {
	io.Reader
	io.Closer
}
