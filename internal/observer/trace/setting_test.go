// SPDX-License-Identifier: MPL-2.0

package trace_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/trace"
)

// silent is a listener that counts who comes, and answers nobody.
type silent struct {
	net.Listener

	came chan struct{}
}

func listenSilently(t testing.TB) *silent {
	t.Helper()

	var config net.ListenConfig

	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	made := &silent{Listener: listener, came: make(chan struct{}, 100)}

	go func() {
		var held []net.Conn

		for {
			conn, err := listener.Accept()
			if err != nil {
				for _, one := range held {
					_ = one.Close()
				}

				return
			}

			held = append(held, conn)
			made.came <- struct{}{}
		}
	}()

	t.Cleanup(func() { _ = listener.Close() })

	return made
}

func TestSetting_NothingIsTracedUnlessAskedFor(t *testing.T) {
	nobody := listenSilently(t)
	endpoint := "http://" + nobody.Addr().String()

	for title, env := range map[string]map[string]string{
		"no variables":         {},
		"a name alone":         {"OTEL_SERVICE_NAME": "ci", "OTEL_RESOURCE_ATTRIBUTES": "a=b"},
		"a parent alone":       {"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"a protocol alone":     {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		"an empty endpoint":    {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_TRACES_EXPORTER": ""},
		"metrics alone":        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": endpoint},
		"no exporter":          {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
		"switched off":         {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
		"switched off, spelt":  {"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "otlp"},
		"switched off, broken": {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "console"},
	} {
		t.Run(title, func(t *testing.T) {
			for name, value := range env {
				t.Setenv(name, value)
			}

			before := goleak.IgnoreCurrent()

			if tracer, err := trace.Start(t.Context(), aRun()); tracer != nil || err != nil {
				t.Errorf("got %v, %v", tracer, err)
			}

			goleak.VerifyNone(t, before)
		})
	}

	select {
	case <-nobody.came:
		t.Error("somebody was contacted")
	default:
	}
}

func TestSetting_UnusableIsAnErrorWithoutItsValue(t *testing.T) {
	const secret = "pa55word"

	for title, test := range map[string]struct {
		env  map[string]string
		says string
	}{
		"console":       {map[string]string{"OTEL_TRACES_EXPORTER": "console"}, "standard output"},
		"zipkin":        {map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, `OTEL_TRACES_EXPORTER is "zipkin"`},
		"two exporters": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp,console"}, "otlp,console"},
		"no URL":        {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "user:" + secret + "@collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		"no host":       {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "localhost:4318"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not a URL"},
		"a protocol": {
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:" + secret + "@127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "http/protobuf",
		},
	} {
		t.Run(title, func(t *testing.T) {
			for name, value := range test.env {
				t.Setenv(name, value)
			}

			tracer, err := trace.Start(t.Context(), aRun())
			if tracer != nil || err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, %v", tracer, err)
			}
		})
	}
}

func TestSetting_ResourceAndHeadersComeFromTheEnvironment(t *testing.T) {
	to := overHTTP(t)
	t.Setenv("OTEL_SERVICE_NAME", "night-shift")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,team=platform")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t0ken")

	short().traced(t, to)

	if r := to.resource; r["service.name"] != "night-shift" || r["deployment.environment.name"] != "prod" || r["team"] != "platform" || r["service.version"] != "1.2.3" {
		t.Errorf("the resource is %v", r)
	}

	if got := to.headers.Get("Authorization"); got != "Bearer t0ken" {
		t.Errorf("the collector got %q", got)
	}
}

func TestSetting_UnreadableResourceIsSaidAndTheRestIsTraced(t *testing.T) {
	to := overHTTP(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "s3cret")

	err := short().start(t, aRun()).Close(bounded(t), trace.Outcome{})
	if err == nil || !strings.Contains(err.Error(), "OTEL_RESOURCE_ATTRIBUTES") || strings.Contains(err.Error(), "s3cret") || len(to.got()) != 1 {
		t.Errorf("%d spans and %v", len(to.got()), err)
	}
}

// short is a run in which nothing happens.
func short() story {
	begun := time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)

	return story{begun: begun, end: begun.Add(time.Minute)}
}
