// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"net/url"
	"os"
	"strings"
)

// The environment variables that decide whether a run is traced. The OpenTelemetry libraries read all others.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envHeaders        = "OTEL_EXPORTER_OTLP_HEADERS"
	envTracesHeaders  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	envResource       = "OTEL_RESOURCE_ATTRIBUTES"
	envParent         = "TRACEPARENT"
	envState          = "TRACESTATE"
)

// wanted reports whether the environment asks for a trace, or returns an error if it asks for one that cannot be
// made. If no exporter is named, a trace is made only if an endpoint is set: by default, OpenTelemetry would try
// a collector on the same machine.
func wanted() (bool, error) {
	if strings.EqualFold(setting(envDisabled), "true") {
		return false, nil
	}

	name, endpoint := endpointInUse()

	switch exporter := setting(envExporter); exporter {
	case "none":
		return false, nil
	case "":
		if endpoint == "" {
			return false, nil
		}
	case "otlp":
	case "console":
		return false, fmt.Errorf("%s is \"console\", which writes to standard output, and that of a provider belongs to Terraform; set it to \"otlp\", or to \"none\"", envExporter)
	default:
		return false, fmt.Errorf("%s is %q, and spans can be exported with \"otlp\" only; set it to that, or to \"none\"", envExporter, exporter)
	}

	if endpoint == "" {
		return true, nil
	}

	// The libraries would use their default endpoint instead. The value may contain a password and is not
	// repeated.
	if parsed, err := url.Parse(endpoint); err != nil || parsed.Host == "" && parsed.Scheme != "unix" {
		return false, fmt.Errorf("%s is not a URL; write it like http://localhost:4318", name)
	}

	return true, nil
}

// endpointInUse returns the endpoint for spans and the variable it comes from. The value is empty if none is set.
func endpointInUse() (name, value string) {
	if value = setting(envTracesEndpoint); value != "" {
		return envTracesEndpoint, value
	}

	return envEndpoint, setting(envEndpoint)
}

// setting returns an environment variable. An empty one counts as unset.
func setting(name string) string { return strings.TrimSpace(os.Getenv(name)) }
