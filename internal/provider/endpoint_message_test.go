// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// TestEndpointsThatDoNotAnswerAreNamed once each, with what came of them, in words that
// say nothing of gRPC or of resources.
func TestEndpointsThatDoNotAnswerAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		endpoints []string
		want      string
	}{
		"one":                      {[]string{"127.0.0.1:1"}, "No endpoint answered: 127.0.0.1:1 connection refused."},
		"one of them twice":        {[]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"}, "No endpoint answered: 127.0.0.1:1 connection refused; 127.0.0.1:2 connection refused."},
		"a name that nobody knows": {[]string{"nowhere.invalid", "127.0.0.1:2"}, "No endpoint answered: nowhere.invalid no such host; 127.0.0.1:2 connection refused."},
	} {
		t.Run(name, func(t *testing.T) {
			access := credentials{Endpoints: test.endpoints, Certificate: signedFor(t, time.Now().Add(time.Hour), "os:admin")}
			shared := testSettings()
			shared.dial = dial

			_, err := newClusters(shared, access).observe(t.Context(), "")

			found := noted(t, diag.Diagnostics{problem("plan the upgrade", access, err)})[0]
			if detail, _, _ := strings.Cut(found.Detail(), "\n\n"); detail != test.want {
				t.Errorf("got %s, want %s", detail, test.want)
			}
		})
	}
}
