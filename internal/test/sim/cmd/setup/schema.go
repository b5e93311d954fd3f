// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// required is the smallest configuration that requires the provider.
const required = `terraform {
  required_providers {
    talosupgrade = { source = "vitistack/talosupgrade" }
  }
}
`

// shortName is the key under which tfplugindocs looks for a schema.
const shortName = "talosupgrade"

// writeSchema asks Terraform for the schema of the provider in the source tree. Only newer versions know all of it,
// such as identities and list resources, so it uses the pinned one, whichever the tests run with.
func writeSchema(ctx context.Context, options toolchain.Options, path string) error {
	output, err := schemaOutput(ctx, options)
	if err != nil {
		return err
	}

	schema, err := renameProvider(output)
	if err != nil {
		return err
	}

	if err := os.WriteFile(path, schema, 0o600); err != nil {
		return fmt.Errorf("writing the schema: %w", err)
	}

	return nil
}

func schemaOutput(ctx context.Context, options toolchain.Options) (output []byte, err error) {
	cli, err := toolchain.PinnedTerraform(ctx, options)
	if err != nil {
		return nil, err
	}

	providerDir, err := toolchain.BuildProvider(ctx, options)
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp("", "talosupgrade-schema-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for the command line: %w", err)
	}

	defer func() {
		if removing := os.RemoveAll(dir); err == nil {
			err = removing
		}
	}()

	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(required), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}

	space, err := workspace.New(dir, cli, providerDir)
	if err != nil {
		return nil, err
	}

	var answer, complaint bytes.Buffer

	command := space.Command(ctx, "providers", "schema", "-json")
	command.Stdout, command.Stderr = &answer, &complaint

	if err := space.Run(command); err != nil {
		return nil, fmt.Errorf("%s providers schema: %w\n%s", cli.Name, err, &complaint)
	}

	return answer.Bytes(), nil
}

// renameProvider puts the schema under the name that tfplugindocs expects, whichever registry the command line
// uses.
func renameProvider(output []byte) ([]byte, error) {
	document := map[string]json.RawMessage{}
	if err := json.Unmarshal(output, &document); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}

	providers := map[string]json.RawMessage{}
	if err := json.Unmarshal(document["provider_schemas"], &providers); err != nil {
		return nil, fmt.Errorf("reading the provider schemas: %w", err)
	}

	for address, schema := range providers {
		if !strings.HasSuffix(address, "/vitistack/"+shortName) {
			continue
		}

		renamed, err := json.Marshal(map[string]json.RawMessage{shortName: schema})
		if err != nil {
			return nil, fmt.Errorf("writing the provider schemas: %w", err)
		}

		document["provider_schemas"] = renamed

		return json.Marshal(document)
	}

	return nil, fmt.Errorf("no schema of vitistack/%s in the answer", shortName)
}
