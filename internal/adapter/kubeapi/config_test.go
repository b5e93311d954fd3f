// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
)

func TestNewNamesWhatIsWrongWithAKubeconfig(t *testing.T) {
	t.Parallel()

	const secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA=="

	cluster := "clusters: [{name: c, cluster: {server: \"https://10.5.0.2:6443\"}}]\n"
	contexts := "contexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: gone, user: u}}]\n"

	for name, test := range map[string]struct{ yaml, context, want string }{
		"empty":           {"\n", "", "it is empty"},
		"malformed":       {"contexts: {" + secret, "", "malformed"},
		"other YAML":      {"contexts: " + secret, "", "malformed"},
		"a talosconfig":   {"context: a\ncontexts: {a: {endpoints: [10.5.0.2], key: " + secret + "}}\n", "", "it is a talosconfig"},
		"no contexts":     {"apiVersion: v1\nkind: Config\n" + cluster, "", "no contexts"},
		"ambiguous":       {cluster + contexts, "", `there are "a", "b"`},
		"unknown context": {cluster + contexts, "x", `context "x" does not exist, there are "a", "b"`},
		"unknown current": {"current-context: x\n" + cluster + contexts, "", `current context "x" does not exist`},
		"no server":       {cluster + contexts, "b", `cluster "gone" has no server`},
		"key not PEM": {
			cluster + contexts + "users: [{name: u, user: {client-certificate-data: " + secret + ", client-key-data: " + secret + "}}]\n", "a", "kubeconfig not usable",
		},
	} {
		_, err := kubeapi.New([]byte(test.yaml), test.context, kubeapi.Options{})
		if !errors.Is(err, kubeapi.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)

			continue
		}

		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, test.want)
		}

		if strings.Contains(err.Error(), secret[:12]) {
			t.Errorf("%s: the error shows the beginning of a key", name)
		}
	}
}

func TestUnavailableAnswersItsErrorToEverything(t *testing.T) {
	t.Parallel()

	reason := errors.New("no way there")
	api := kubeapi.NewUnavailable(reason)

	for name, call := range portCalls(api) {
		if err := call(t.Context()); !errors.Is(err, reason) {
			t.Errorf("%s: %v, want the reason", name, err)
		}
	}
}
