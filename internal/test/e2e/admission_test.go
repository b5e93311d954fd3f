// SPDX-License-Identifier: MPL-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
)

const (
	// allowed is the prefix that the name of a cluster has to have.
	allowed = "e2e-"
	// admissionTimeout bounds all requests before a cluster is admitted.
	admissionTimeout = time.Minute
)

// errRefused is wrapped if a cluster was not made for this run.
var errRefused = errors.New("refused, and nothing was written: the run drains and reboots every node, so it takes only a cluster whose name starts with " + allowed)

// allow returns an error if a name does not have the prefix, or is only the prefix.
func allow(what, name string) error {
	if !strings.HasPrefix(name, allowed) || name == allowed {
		return fmt.Errorf("%s is %q, want a name that starts with %s: %w", what, name, allowed, errRefused)
	}

	return nil
}

// pick returns the name of the requested context. If its name is not allowed, it returns an error. It opens no
// connection.
func pick(config *clientconfig.Config, path, name string) (string, error) {
	what := fmt.Sprintf("the context of %s that CONTEXT names", path)

	if name == "" {
		name, what = config.Context, "the current context of "+path
	}

	if err := allow(what, name); err != nil {
		return "", err
	}

	if config.Contexts[name] == nil {
		return "", fmt.Errorf("%s is %q, which is not in the file", what, name)
	}

	return name, nil
}

// admit returns the name of the context if both that name and the cluster name in the configuration of every machine
// are allowed. It only reads.
func admit(ctx context.Context, path, wanted string) (string, error) {
	config, err := clientconfig.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}

	name, err := pick(config, path, wanted)
	if err != nil {
		return "", err
	}

	ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()

	api, err := client.New(ctx, client.WithConfig(config), client.WithContextName(name))
	if err != nil {
		return "", fmt.Errorf("context %s of %s: %w", name, path, err)
	}

	return name, errors.Join(askNames(ctx, api), api.Close())
}

// askNames checks the cluster name of every machine.
func askNames(ctx context.Context, api *client.Client) error {
	members, err := safe.StateListAll[*clusterres.Member](ctx, api.COSI)
	if err != nil {
		return fmt.Errorf("listing the machines of the cluster: %w", err)
	}

	if members.Len() == 0 {
		return fmt.Errorf("discovery lists no machine, so none can say which cluster it is of: %w", errRefused)
	}

	for member := range members.All() {
		if err := askName(ctx, api, member); err != nil {
			return err
		}
	}

	return nil
}

func askName(ctx context.Context, api *client.Client, member *clusterres.Member) error {
	spec := member.TypedSpec()
	if len(spec.Addresses) == 0 {
		return fmt.Errorf("discovery knows no address of %s, so it cannot say which cluster it is of: %w", spec.Hostname, errRefused)
	}

	pointer := resource.NewMetadata(clusterres.NamespaceName, clusterres.InfoType, clusterres.InfoID, resource.VersionUndefined)

	info, err := safe.StateGet[*clusterres.Info](client.WithNode(ctx, spec.Addresses[0].String()), api.COSI, pointer)
	if err != nil {
		return fmt.Errorf("asking %s for the name of its cluster: %w", spec.Hostname, err)
	}

	return allow("the name of the cluster in the configuration of "+spec.Hostname, info.TypedSpec().ClusterName)
}

func TestOnlyNamesThatStartAsTheyHaveToAreAllowed(t *testing.T) {
	for name, want := range map[string]bool{
		"e2e-1": true, "e2e-legacy": true,
		"": false, "e2e-": false, "e2e": false, "E2E-1": false, "prod": false, "prod-e2e-1": false, "x e2e-1": false, "admin@e2e-1": false,
	} {
		if err := allow("the name", name); (err == nil) != want || err != nil && !errors.Is(err, errRefused) {
			t.Errorf("%q: %v, want it allowed: %t", name, err, want)
		}
	}
}

func TestTheContextIsTheOneThatIsAskedFor(t *testing.T) {
	config := &clientconfig.Config{Context: "prod", Contexts: map[string]*clientconfig.Context{"prod": {}, "e2e-1": {}}}

	for _, one := range []struct{ wanted, picked, says string }{
		{"e2e-1", "e2e-1", ""},
		{"", "", `the current context of file is "prod"`},
		{"prod", "", `the context of file that CONTEXT names is "prod"`},
		{"e2e-2", "", `"e2e-2", which is not in the file`},
	} {
		picked, err := pick(config, "file", one.wanted)
		if picked != one.picked || (err == nil) != (one.says == "") || err != nil && !strings.Contains(err.Error(), one.says) {
			t.Errorf("%q: picked %q, %v, want %q and %q", one.wanted, picked, err, one.picked, one.says)
		}
	}

	config.Context = "e2e-1"

	if picked, err := pick(config, "file", ""); err != nil || picked != "e2e-1" {
		t.Errorf("picked %q, %v, want the current context", picked, err)
	}
}
