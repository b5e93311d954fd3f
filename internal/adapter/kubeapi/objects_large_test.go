// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// things is a query for objects of a kind that [serveThings] has.
func things() cluster.ObjectQuery {
	return cluster.ObjectQuery{APIVersion: "example.org/v1", Kind: "Thing"}
}

// serveThings is a server of one kind, whose objects the handler answers.
func serveThings(t *testing.T, handler http.HandlerFunc) (*kubeapi.Client, *atomic.Int32) {
	t.Helper()

	return connect(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		if r.URL.Path == "/apis/example.org/v1" {
			// The transport itself repeats what fails on a connection it had before.
			w.Header().Set("Connection", "close")

			_, _ = w.Write([]byte(`{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing"}]}`))

			return
		}

		handler(w, r)
	})
}

func TestObjectsComeWithoutWhoWroteThem(t *testing.T) {
	t.Parallel()

	const object = `{"metadata":{"name":"a","managedFields":[{"manager":"kubectl"}],"annotations":
		{"kubectl.kubernetes.io/last-applied-configuration":"{}","example.org/kept":"yes"}},"spec":{"managedFields":"mine"}}`

	api, _ := serveThings(t, func(w http.ResponseWriter, r *http.Request) {
		body := object
		if strings.HasSuffix(r.URL.Path, "/things") {
			body = `{"metadata":{},"items":[` + object + `,{"metadata":{"name":"b"}},{"metadata":7}]}`
		}

		_, _ = w.Write([]byte(body))
	})

	for name, query := range map[string]cluster.ObjectQuery{"all": things(), "one": with(things(), "", "a", "")} {
		objects, err := api.Objects(t.Context(), query)
		if err != nil || len(objects) == 0 {
			t.Errorf("%s: %d objects, %v", name, len(objects), err)

			continue
		}

		// An object without a name comes first.
		got, err := json.Marshal(objects[len(objects)/2])
		if err != nil {
			t.Fatal(err)
		}

		for text, want := range map[string]bool{"kubectl": false, `"example.org/kept":"yes"`: true, `"managedFields":"mine"`: true, `"name":"a"`: true} {
			if strings.Contains(string(got), text) != want {
				t.Errorf("%s: %s, want %s in it: %t", name, got, text, want)
			}
		}
	}
}

// TestLargeObjectsAreReadInSmallerPages, so that little of them is held at once
// that is not kept.
func TestLargeObjectsAreReadInSmallerPages(t *testing.T) {
	t.Parallel()

	const objects, small, size = 530, 500, 400_000

	var (
		mutex  sync.Mutex
		limits []int
	)

	api, _ := serveThings(t, func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))

		mutex.Lock()
		limits = append(limits, limit)
		mutex.Unlock()

		page := map[string]any{"metadata": map[string]any{}}
		if from+limit < objects {
			page["metadata"] = map[string]any{"continue": strconv.Itoa(from + limit)}
		}

		var items []map[string]any
		for i := from; i < min(from+limit, objects); i++ {
			item := map[string]any{"metadata": map[string]any{"name": fmt.Sprintf("%03d", i)}}
			if i >= small {
				item["data"] = strings.Repeat("x", size)
			}

			items = append(items, item)
		}

		page["items"] = items

		_ = json.NewEncoder(w).Encode(page)
	})

	found, err := api.Objects(t.Context(), things())
	if err != nil || len(found) != objects {
		t.Fatalf("%d objects, %v", len(found), err)
	}

	for i, object := range found {
		if metadata, _ := object["metadata"].(map[string]any); metadata["name"] != fmt.Sprintf("%03d", i) {
			t.Errorf("object %d is %v", i, metadata["name"])
		}
	}

	// The second of 500 and the eleventh of 50 are too large.
	asked := map[int]int{}
	for _, limit := range limits {
		asked[limit]++
	}

	if want := map[int]int{500: 2, 50: 11, 5: objects / 5}; !maps.Equal(asked, want) {
		t.Errorf("asked for pages of %v, want %v", asked, want)
	}
}

func TestMoreObjectsThanFitAreRefused(t *testing.T) {
	t.Parallel()

	const page = 6 << 20

	large := `{"metadata":{"name":"a"},"data":"` + strings.Repeat("x", page) + `"}`

	for name, test := range map[string]struct {
		query   cluster.ObjectQuery
		handler http.HandlerFunc
		most    int32
	}{
		// One more than fit, and the one for the kind.
		"in many pages": {things(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"metadata":{"continue":"on"},"items":[` + large + `]}`))
		}, 12},
		// As some servers do that know of no pages.
		"in one": {things(), func(w http.ResponseWriter, _ *http.Request) { endless(w, `{"items":[`+large, ","+large) }, 4},
		"in one object": {with(things(), "", "a", ""), func(w http.ResponseWriter, _ *http.Request) {
			endless(w, `{"data":"`, strings.Repeat("x", page))
		}, 2},
	} {
		api, requests := serveThings(t, test.handler)

		objects, err := api.Objects(t.Context(), test.query)
		if !errors.Is(err, cluster.ErrRefused) || objects != nil {
			t.Errorf("%s: %d objects, %v; want them refused", name, len(objects), err)

			continue
		}

		for _, want := range []string{"unable to read the Thing objects of example.org/v1", "64 MiB", "by namespace, name or selector"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want it to say %q", name, err, want)
			}
		}

		if requests.Load() > test.most {
			t.Errorf("%s: %d requests, want %d at most", name, requests.Load(), test.most)
		}
	}
}

// endless answers until nobody listens any more, and gives up at a gigabyte.
func endless(w http.ResponseWriter, begin, more string) {
	_, err := w.Write([]byte(begin))

	for sent := 0; err == nil && sent < 1<<30; sent += len(more) {
		_, err = w.Write([]byte(more))
	}
}

// TestAListThatExpiresIsCountedOnce: what it had read before is not held any
// more.
func TestAListThatExpiresIsCountedOnce(t *testing.T) {
	t.Parallel()

	const pages, size = 6, 7 << 20

	var expired atomic.Bool

	api, _ := serveThings(t, func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		if page == pages-1 && expired.CompareAndSwap(false, true) {
			status(http.StatusGone, "Expired", "the continue token is too old")(w, r)

			return
		}

		next := strconv.Itoa(page + 1)
		if page == pages-1 {
			next = ""
		}

		_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[{"metadata":{"name":"%d"},"data":%q}]}`, next, page, strings.Repeat("x", size))
	})

	if found, err := api.Objects(t.Context(), things()); err != nil || len(found) != pages {
		t.Errorf("%d objects, %v", len(found), err)
	}
}

// TestAReadWhoseConnectionBreaksIsRepeated, once, as all reads are.
func TestAReadWhoseConnectionBreaksIsRepeated(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		breaks int32
		want   error
	}{"once": {1, nil}, "always": {1000, cluster.ErrUnreachable}} {
		var left atomic.Int32

		left.Store(test.breaks)

		api, requests := serveThings(t, func(w http.ResponseWriter, _ *http.Request) {
			if left.Add(-1) >= 0 {
				panic(http.ErrAbortHandler)
			}

			_, _ = w.Write([]byte(`{"items":[{"metadata":{"name":"a"}}]}`))
		})

		objects, err := api.Objects(t.Context(), things())
		if !errors.Is(err, test.want) || (err == nil) != (len(objects) == 1) {
			t.Errorf("%s: %v, %v; want %v", name, objects, err, test.want)
		}

		if requests.Load() > 6 {
			t.Errorf("%s: %d requests", name, requests.Load())
		}
	}
}
