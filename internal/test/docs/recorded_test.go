// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// talosSchema has the form of "terraform providers schema -json", with the part of siderolabs/talos that the
// documentation uses.
//
//go:embed testdata/providers/siderolabs/talos.json
var talosSchema []byte

// recordings are the schemas of other people's providers, by source: the part of a provider that a validation needs,
// without the provider itself.
var recordings = map[string][]byte{"siderolabs/talos": talosSchema}

type (
	recordedBlock struct {
		Attributes map[string]recordedAttribute `json:"attributes"`
	}
	recordedAttribute struct {
		Type   json.RawMessage `json:"type"`
		Nested *struct {
			Attributes map[string]recordedAttribute `json:"attributes"`
			Mode       string                       `json:"nesting_mode"`
		} `json:"nested_type"`
		Required  bool `json:"required"`
		Optional  bool `json:"optional"`
		Computed  bool `json:"computed"`
		Sensitive bool `json:"sensitive"`
		WriteOnly bool `json:"write_only"`
	}
	recordedSchema struct {
		Version int64         `json:"version"`
		Block   recordedBlock `json:"block"`
	}
	recordedProvider struct {
		Provider    recordedSchema            `json:"provider"`
		Resources   map[string]recordedSchema `json:"resource_schemas"`
		DataSources map[string]recordedSchema `json:"data_source_schemas"`
	}
)

// nestings are the nesting modes by their names in JSON.
var nestings = map[string]tfprotov6.SchemaObjectNestingMode{
	"single": tfprotov6.SchemaObjectNestingModeSingle,
	"list":   tfprotov6.SchemaObjectNestingModeList,
	"set":    tfprotov6.SchemaObjectNestingModeSet,
	"map":    tfprotov6.SchemaObjectNestingModeMap,
}

// recorded answers the calls of a validation. To all other calls it answers as a provider without resources and data
// sources.
type recorded struct {
	tfprotov6.ProviderServer

	answer tfprotov6.GetProviderSchemaResponse
}

// bare is a provider without anything.
type bare struct{}

// Metadata implements provider.Provider.
func (bare) Metadata(context.Context, provider.MetadataRequest, *provider.MetadataResponse) {}

// Schema implements provider.Provider.
func (bare) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse) {}

// Configure implements provider.Provider.
func (bare) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}

// DataSources implements provider.Provider.
func (bare) DataSources(context.Context) []func() datasource.DataSource { return nil }

// Resources implements provider.Provider.
func (bare) Resources(context.Context) []func() resource.Resource { return nil }

// serveRecorded serves the provider of the name until the command line ends it.
func serveRecorded(name string) error {
	for source, recording := range recordings {
		if shortName(source) != name {
			continue
		}

		server, err := newRecorded(recording)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}

		return tf6server.Serve("registry.terraform.io/"+source, func() tfprotov6.ProviderServer { return server })
	}

	return fmt.Errorf("nothing is recorded of a provider %s", name)
}

func newRecorded(recording []byte) (*recorded, error) {
	var document struct {
		Providers map[string]recordedProvider `json:"provider_schemas"`
	}

	if err := json.Unmarshal(recording, &document); err != nil {
		return nil, err
	}

	if len(document.Providers) != 1 {
		return nil, fmt.Errorf("%d providers in one recording", len(document.Providers))
	}

	server := &recorded{ProviderServer: providerserver.NewProtocol6(bare{})(), answer: tfprotov6.GetProviderSchemaResponse{
		ServerCapabilities: &tfprotov6.ServerCapabilities{},
		ResourceSchemas:    map[string]*tfprotov6.Schema{},
		DataSourceSchemas:  map[string]*tfprotov6.Schema{},
	}}

	for _, provider := range document.Providers {
		var err error

		if server.answer.Provider, err = provider.Provider.convert(); err != nil {
			return nil, err
		}

		if err := convertAll(server.answer.ResourceSchemas, provider.Resources); err != nil {
			return nil, err
		}

		if err := convertAll(server.answer.DataSourceSchemas, provider.DataSources); err != nil {
			return nil, err
		}
	}

	return server, nil
}

func convertAll(into map[string]*tfprotov6.Schema, schemas map[string]recordedSchema) error {
	for name, schema := range schemas {
		converted, err := schema.convert()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}

		into[name] = converted
	}

	return nil
}

func (s recordedSchema) convert() (*tfprotov6.Schema, error) {
	attributes, err := convertAttributes(s.Block.Attributes)

	return &tfprotov6.Schema{Version: s.Version, Block: &tfprotov6.SchemaBlock{Attributes: attributes}}, err
}

func convertAttributes(recorded map[string]recordedAttribute) ([]*tfprotov6.SchemaAttribute, error) {
	var attributes []*tfprotov6.SchemaAttribute

	for name, attribute := range recorded {
		converted := &tfprotov6.SchemaAttribute{
			Name: name, Required: attribute.Required, Optional: attribute.Optional, Computed: attribute.Computed,
			Sensitive: attribute.Sensitive, WriteOnly: attribute.WriteOnly,
		}

		if nested := attribute.Nested; nested != nil {
			inner, err := convertAttributes(nested.Attributes)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}

			converted.NestedType = &tfprotov6.SchemaObject{Attributes: inner, Nesting: nestings[nested.Mode]}
		} else {
			//nolint:staticcheck // the one way to read a type from a schema in JSON
			kind, err := tftypes.ParseJSONType(attribute.Type)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}

			converted.Type = kind
		}

		attributes = append(attributes, converted)
	}

	return attributes, nil
}

// GetProviderSchema implements tfprotov6.ProviderServer, as do the other methods.
func (r *recorded) GetProviderSchema(context.Context, *tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse, error) {
	return &r.answer, nil
}

func (r *recorded) ValidateProviderConfig(
	_ context.Context, request *tfprotov6.ValidateProviderConfigRequest,
) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return &tfprotov6.ValidateProviderConfigResponse{PreparedConfig: request.Config}, nil
}

func (r *recorded) ValidateResourceConfig(
	context.Context, *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return &tfprotov6.ValidateResourceConfigResponse{}, nil
}

func (r *recorded) ValidateDataResourceConfig(
	context.Context, *tfprotov6.ValidateDataResourceConfigRequest,
) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	return &tfprotov6.ValidateDataResourceConfigResponse{}, nil
}

func (r *recorded) StopProvider(context.Context, *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	return &tfprotov6.StopProviderResponse{}, nil
}
