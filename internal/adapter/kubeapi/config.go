// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ErrConfig is wrapped by every error of [New].
var ErrConfig = errors.New("kubeconfig not usable")

func parseKubeconfig(kubeconfig []byte, contextName string) (*rest.Config, error) {
	if strings.TrimSpace(string(kubeconfig)) == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrConfig)
	}

	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed: %s", ErrConfig, withoutContent(err.Error()))
	}

	name, err := pickContext(parsed, contextName)
	if err != nil {
		return nil, err
	}

	config, err := clientcmd.NewNonInteractiveClientConfig(*parsed, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: context %q: %s", ErrConfig, name, withoutContent(err.Error()))
	}

	return config, nil
}

func pickContext(parsed *clientcmdapi.Config, wanted string) (string, error) {
	names := slices.Sorted(maps.Keys(parsed.Contexts))
	if len(names) == 0 {
		return "", fmt.Errorf("%w: it has no contexts", ErrConfig)
	}

	name, origin := wanted, "context"
	if name == "" {
		name, origin = parsed.CurrentContext, "current context"
	}

	if name == "" && len(names) == 1 {
		name = names[0]
	}

	if name == "" {
		return "", fmt.Errorf("%w: it names no current context, so one must be chosen: there are %s", ErrConfig, quoted(names))
	}

	chosen := parsed.Contexts[name]
	if chosen == nil {
		return "", fmt.Errorf("%w: %s %q does not exist, there are %s", ErrConfig, origin, name, quoted(names))
	}

	if parsed.Clusters[chosen.Cluster] == nil || parsed.Clusters[chosen.Cluster].Server == "" {
		return "", fmt.Errorf("%w: context %q: cluster %q has no server", ErrConfig, name, chosen.Cluster)
	}

	return name, nil
}

func quoted(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%q", name)
	}

	return strings.Join(texts, ", ")
}

var longWords = regexp.MustCompile(`[^\s"']{60,}`)

// withoutContent drops what an error quotes from the document if it could be a
// key or a token.
func withoutContent(text string) string {
	return longWords.ReplaceAllString(strings.ReplaceAll(text, "\n", " "), "...")
}
