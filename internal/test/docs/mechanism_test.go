// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const someArguments = "talos_version = \"1.13.4\"\nsettle = \"5m\"\n"

// TestInvalidConfigurationsAreFound checks configurations that are wrong in the ways that a page may be wrong.
func TestInvalidConfigurationsAreFound(t *testing.T) {
	j := newJudge(t)

	for name, test := range map[string]struct {
		text, says string
		mark       marker
	}{
		"an attribute that is none":           {text: "resource \"talosupgrade_cluster\" \"a\" {\n  talos_versio = \"1.13.4\"\n}\n", says: "talos_versio"},
		"a value that is not allowed":         {text: "resource \"talosupgrade_cluster\" \"a\" {\n  talos_version = \"1.13\"\n}\n", says: "1.13"},
		"arguments alone, unmarked":           {text: someArguments, says: "not expected here"},
		"a provider's attribute":              {text: "talosconfig_pat = \"a\"\n", mark: marker{within: "provider"}, says: "talosconfig_pat"},
		"a value of an aliased provider":      {text: "provider \"talosupgrade\" {\n  alias     = \"b\"\n  endpoints = { a = 1 }\n}\n", says: "endpoints"},
		"a function with too few arguments":   {text: "locals {\n  a = provider::talosupgrade::compatible(\"1.13.4\")\n}\n", says: "Not enough function arguments"},
		"a reference to nothing":              {text: "output \"a\" {\n  value = local.nowhere\n}\n", says: "nowhere"},
		"an attribute of another's resource":  {text: "resource \"talos_machine\" \"a\" {\n  node    = \"10.5.0.2\"\n  version = \"1.13.4\"\n}\n", says: "version"},
		"an argument that another's lacks":    {text: "resource \"talos_machine_configuration_apply\" \"a\" {}\n", says: "\"node\" is required"},
		"a result that another's lacks":       {text: "output \"a\" {\n  value = talos_machine_secrets.this.talosconfig\n}\n", says: "talosconfig"},
		"a provider of which nothing is here": {text: "resource \"unheard_of\" \"a\" {}\n", says: `provider "unheard"`},
		"no HCL at all":                       {text: "a = {\n", says: "main.tf"},
		"no HCL, although only parsed":        {text: "a = {\n", mark: marker{parseOnly: "for once"}, says: "main.tf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := j.validate(t.Context(), t.TempDir(), snippet{file: "page.md", text: test.text, mark: test.mark})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one about %q", err, test.says)
			}
		})
	}
}

func TestPartsAreCompleted(t *testing.T) {
	j := newJudge(t)

	for name, test := range map[string]struct {
		snippet snippet
		want    verdict
	}{
		"the arguments of a resource": {snippet: snippet{text: "settle = \"5m\"\n", mark: marker{within: "resource"}}},
		"its versions as well":        {snippet: snippet{text: someArguments, mark: marker{within: "resource"}}},
		"what is beside it": {
			snippet{
				text:       "output \"a\" {\n  value = local.b\n}\n",
				neighbours: []string{"locals {\n  b = \"${var.c}-${local.d}\"\n  d = 1\n  unused = local.nowhere\n}\n", "variable \"c\" {}\n"},
			},
			verdict{taken: []string{"local.b", "local.d", "var.c"}},
		},
		"what the rest has": {
			snippet{text: "output \"a\" {\n  value     = data.talos_client_configuration.this.talos_config\n  sensitive = true\n}\n"},
			verdict{taken: []string{"data.talos_client_configuration.this", "talos_machine_secrets.this"}},
		},
		"a provider beside it": {
			snippet{
				text:       "resource \"talosupgrade_cluster\" \"a\" {\n  provider      = talosupgrade.b\n  talos_version = \"1.13.4\"\n}\n",
				neighbours: []string{"provider \"talosupgrade\" {\n  alias = \"b\"\n}\n"},
			},
			verdict{taken: []string{"talosupgrade.b"}},
		},
		"for the other command line": {
			snippet{text: "a = {}\n", mark: marker{only: requirement{name: j.cli.Name, oldest: version.Minor{Major: 99}}}},
			verdict{without: "it needs " + j.cli.Name + " 99.0 or newer"},
		},
		"what cannot be validated": {snippet{text: "a = {}\n", mark: marker{parseOnly: "nobody can"}}, verdict{without: "nobody can"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, err := j.validate(t.Context(), t.TempDir(), test.snippet)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPagesAreRead(t *testing.T) {
	const text = "# Title\n```sh\n# <!-- validate: in resource -->\n```\n```hcl\na = 1\n```\n" +
		"- in a list:\n\n  <!-- validate: in resource -->\n  ```terraform\n  b = {\n    c = 1\n  }\n  ```\n" +
		"<!-- validate: only tofu >= 1.9; not run: a reason -->\n\n```hcl\nd = 1\n```\n"

	got, err := page("page.md", text)
	if err != nil {
		t.Fatal(err)
	}

	want := []snippet{
		{file: "page.md", line: 6, text: "a = 1\n", dir: "."},
		{file: "page.md", line: 12, text: "b = {\n  c = 1\n}\n", dir: ".", mark: marker{within: "resource"}},
		{
			file: "page.md", line: 19, text: "d = 1\n", dir: ".",
			mark: marker{only: requirement{name: toolchain.NameOpenTofu, oldest: version.Minor{Major: 1, Minor: 9}}, notRun: "a reason"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(snippet{}, marker{}, requirement{})); diff != "" {
		t.Errorf("snippets (-want +got):\n%s", diff)
	}
}

// TestStandInsAnswerEveryCall calls each method of the protocol that the SDK serves: which of them a command line
// calls differs from release to release.
func TestStandInsAnswerEveryCall(t *testing.T) {
	standIn, err := newRecorded(talosSchema)
	if err != nil {
		t.Fatal(err)
	}

	panicked := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
		defer func() {
			if reason := recover(); reason != nil {
				err = status.Errorf(codes.Internal, "panic: %v", reason)
			}
		}()

		return handle(ctx, request)
	}

	server, listener := grpc.NewServer(grpc.UnaryInterceptor(panicked)), bufconn.Listen(1<<20)
	plugin := tf6server.GRPCProviderPlugin{GRPCProvider: func() tfprotov6.ProviderServer { return standIn }}

	if err := plugin.GRPCServer(nil, server); err != nil {
		t.Fatal(err)
	}

	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	connection, err := grpc.NewClient("passthrough:///stand-in", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()

	const service = "tfplugin6.Provider"

	var answered []string

	for _, method := range server.GetServiceInfo()[service].Methods {
		if method.IsClientStream || method.IsServerStream {
			continue
		}

		err := connection.Invoke(t.Context(), "/"+service+"/"+method.Name, &emptypb.Empty{}, &emptypb.Empty{})
		if err == nil {
			answered = append(answered, method.Name)
		} else if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method.Name, err)
		}
	}

	for _, asked := range []string{"GetMetadata", "GetProviderSchema", "GetResourceIdentitySchemas", "GetFunctions", "ConfigureProvider", "StopProvider"} {
		if !slices.Contains(answered, asked) {
			t.Errorf("%s has no answer; those that have one: %q", asked, answered)
		}
	}
}

func TestMarkersThatSayNothingAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"half a sentence":      "<!-- validate: in resource; never -->\n```hcl\n```\n",
		"an unknown word":      "<!-- validate: never -->\n```hcl\n```\n",
		"no reason":            "<!-- validate: parse only: -->\n```hcl\n```\n",
		"an unknown command":   "<!-- validate: only pulumi -->\n```hcl\n```\n",
		"another language":     "<!-- validate: in resource -->\n```yaml\n```\n",
		"no block":             "<!-- validate: in resource -->\nText.\n",
		"the end of the page":  "Text.\n<!-- validate: in resource -->\n",
		"a block without name": "<!-- validate: in resource -->\n```\n```\n",
	} {
		t.Run(name, func(t *testing.T) {
			if found, err := page("page.md", text); err == nil {
				t.Errorf("found %v", found)
			}
		})
	}
}
