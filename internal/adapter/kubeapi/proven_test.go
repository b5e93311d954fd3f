// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestRefusalOfWhatWasAllowedBeforeMayHeal: an API server that has just started
// knows nobody's permissions yet.
func TestRefusalOfWhatWasAllowedBeforeMayHeal(t *testing.T) {
	for name, test := range map[string]struct {
		message, kind string
		// allowed tells that the request was carried out before.
		allowed bool
		want    error
		heals   bool
	}{
		"just started":           {`nodes is forbidden: User "ops" cannot list resource "nodes"`, "json", true, cluster.ErrUnreachable, true},
		"just started, protobuf": {`nodes is forbidden: User "ops" cannot list resource "nodes"`, "protobuf", true, cluster.ErrUnreachable, true},
		"never allowed":          {`nodes is forbidden: User "ops" cannot list resource "nodes"`, "json", false, cluster.ErrDenied, false},
		"refused by a webhook":   {`admission webhook "w" denied the request`, "json", true, cluster.ErrRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32

			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) == 1 && test.allowed {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","items":[]}`)

					return
				}

				answerForbidden(t, w, test.kind, test.message)
			}))
			t.Cleanup(server.Close)

			client, err := kubeapi.New([]byte(plainKubeconfig(server.URL)), "", kubeapi.Options{})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(client.Close)

			if _, err := client.Nodes(t.Context()); (err == nil) != test.allowed {
				t.Fatalf("the first request ended with %v", err)
			}

			_, err = client.Nodes(t.Context())
			if !errors.Is(err, test.want) || cluster.Heals(err) != test.heals || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, want %v, and the reason in it", err, test.want)
			}
		})
	}
}

func answerForbidden(t *testing.T, w http.ResponseWriter, kind, message string) {
	t.Helper()

	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message,
	}

	if kind == "json" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`, message)

		return
	}

	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(http.StatusForbidden)

	if err := protobuf.NewSerializer(nil, nil).Encode(status, w); err != nil {
		t.Error(err)
	}
}

// plainKubeconfig is a kubeconfig without credentials.
func plainKubeconfig(server string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, server)
}
