// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/protobuf/proto"
)

// configDocument is the resource MachineConfig with the YAML as it is, whether
// or not the Talos library of this build could read it.
type configDocument struct {
	metadata resource.Metadata
	spec     configSpec
}

type configSpec struct {
	text []byte
}

func newConfigDocument(id resource.ID, text []byte, version resource.Version) *configDocument {
	return &configDocument{
		metadata: resource.NewMetadata(config.NamespaceName, config.MachineConfigType, id, version),
		spec:     configSpec{text: text},
	}
}

// Metadata implements resource.Resource.
func (d *configDocument) Metadata() *resource.Metadata { return &d.metadata }

// Spec implements resource.Resource.
func (d *configDocument) Spec() any { return d.spec }

// DeepCopy implements resource.Resource.
func (d *configDocument) DeepCopy() resource.Resource {
	return &configDocument{metadata: d.metadata, spec: configSpec{text: slices.Clone(d.spec.text)}}
}

// ResourceDefinition implements meta.ResourceDefinitionProvider.
func (d *configDocument) ResourceDefinition() meta.ResourceDefinitionSpec {
	return meta.ResourceDefinitionSpec{
		Type:             config.MachineConfigType,
		Aliases:          []resource.Type{},
		DefaultNamespace: config.NamespaceName,
		Sensitivity:      meta.Sensitive,
	}
}

// MarshalProto implements protobuf.ProtoMarshaler.
func (s configSpec) MarshalProto() ([]byte, error) {
	return proto.Marshal(&configpb.MachineConfigSpec{YamlMarshalled: s.text})
}

// MarshalYAML implements yaml.Marshaler.
func (s configSpec) MarshalYAML() (any, error) { return string(s.text), nil }
