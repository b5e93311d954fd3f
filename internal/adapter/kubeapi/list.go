// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"errors"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

const (
	// pageSize is how many objects are asked for at a time; kubectl asks for as many.
	pageSize = 500
	// smallestPage is how few objects are asked for at a time if they are large, and pageStep is the factor by
	// which a page shrinks.
	smallestPage = 5
	pageStep     = 10
	// listTimeout bounds all pages of one list together, on the real clock.
	listTimeout = time.Minute
	// listAttempts is how often a list is started.
	listAttempts = 2
)

// errTooLarge is wrapped by the error of an answer that is larger than wanted.
var errTooLarge = errors.New("answer too large")

// page is the part of a list to ask for.
type page struct {
	// from is the token with which the list continues; empty for the first page.
	from string
	// limit is the number of objects to ask for.
	limit int
}

// listed is a list that comes in pages.
type listed interface {
	runtime.Object
	metav1.ListInterface
}

// listOf reads a list page by page. Each page is converted before the next one
// is read, so that no more than one of them is held in memory.
func listOf[L listed, T any](
	ctx context.Context, what string, request func() *rest.Request, empty func() L, convert func(L) []T,
) ([]T, error) {
	return pages(ctx, request, func(ctx context.Context, request *rest.Request, _ page) ([]T, string, error) {
		list := empty()
		if err := read(ctx, what, request, list); err != nil {
			return nil, "", err
		}

		return convert(list), list.GetContinue(), nil
	})
}

// pages returns what fetch makes of each page. The API server forgets the state of a list after some minutes; the
// list then starts over, once. If a page is too large, it starts over with smaller pages, because a token to
// continue is valid for one page size only.
func pages[T any](
	ctx context.Context, request func() *rest.Request,
	fetch func(ctx context.Context, request *rest.Request, asked page) (items []T, next string, err error),
) ([]T, error) {
	var all []T

	asked := page{limit: pageSize}

	for attempt := 1; ; {
		current := request().Param("limit", strconv.Itoa(asked.limit))
		if asked.from != "" {
			current = current.Param("continue", asked.from)
		}

		items, next, err := fetch(ctx, current, asked)

		switch {
		case err != nil && asked.from != "" && attempt < listAttempts && expired(err):
			all, asked.from = nil, ""
			attempt++

			continue
		case errors.Is(err, errTooLarge) && asked.limit > smallestPage:
			all, asked = nil, page{limit: asked.limit / pageStep}

			continue
		case err != nil:
			return nil, err
		}

		all = append(all, items...)

		if next == "" {
			return all, nil
		}

		asked.from = next
	}
}

func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
