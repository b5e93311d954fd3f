// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"net/url"
	"os"
	"strings"
)

// The variables that decide whether a run is traced. All others are read by the
// libraries of OpenTelemetry.
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

// wanted tells whether the environment asks for a trace, or why it cannot have one.
// An exporter that is not named is one only where it is said where to send to: the
// default of OpenTelemetry would try a collector on this very machine.
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

	// The libraries would go to their default instead. What it is may hold a password.
	if parsed, err := url.Parse(endpoint); err != nil || parsed.Host == "" && parsed.Scheme != "unix" {
		return false, fmt.Errorf("%s is not a URL; write it like http://localhost:4318", name)
	}

	return true, nil
}

// endpointInUse is where spans go, and the variable that says so; empty where none
// does.
func endpointInUse() (name, value string) {
	if value = setting(envTracesEndpoint); value != "" {
		return envTracesEndpoint, value
	}

	return envEndpoint, setting(envEndpoint)
}

// setting is a variable of the environment; one that is empty is not set.
func setting(name string) string { return strings.TrimSpace(os.Getenv(name)) }
