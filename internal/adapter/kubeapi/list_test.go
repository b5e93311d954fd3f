// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// TestList_BeginsAnewWhenItExpires: the API server forgets old states of a list.
func TestList_BeginsAnewWhenItExpires(t *testing.T) {
	t.Parallel()

	var expiries atomic.Int32

	for name, test := range map[string]struct {
		times int32
		fails bool
	}{"once": {1, false}, "always": {1000, true}} {
		expiries.Store(test.times)

		api, _ := connect(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")

			switch token := r.URL.Query().Get("continue"); {
			case r.URL.Path == "/api/v1/pods":
				_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1"}`))
			case r.URL.Path != "/api/v1/nodes":
				_, _ = w.Write([]byte(`{"kind":"PodDisruptionBudgetList","apiVersion":"policy/v1"}`))
			case token == "":
				_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","metadata":{"continue":"2"},"items":[{"metadata":{"name":"a"}}]}`))
			case expiries.Add(-1) >= 0:
				status(http.StatusGone, "Expired", "the continue token is too old")(w, r)
			default:
				_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"b"}}]}`))
			}
		})

		found, err := api.Workloads(t.Context())
		if test.fails != (err != nil) || !test.fails && len(found.Rooms) != 2 {
			t.Errorf("%s: %v, %v; want each node once", name, found.Rooms, err)
		}
	}
}
