package shop

import (
	"context"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// impatient is the environment of a process that looks for a Pulsar where there is none, and not for long.
var impatient = map[string]string{
	"PULSAR_URL": "pulsar://127.0.0.1:1", "ONCEBOX_PULSAR_CONNECT_TIMEOUT": "100ms",
	"ONCEBOX_PULSAR_OPERATION_TIMEOUT": "100ms", "ONCEBOX_PULSAR_CLOSE_TIMEOUT": "100ms",
}

// A service that is started wrongly says what to do.
func TestStartUpErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()

	required := maps.Clone(impatient) // without it a broker that is away is waited for
	required["ONCEBOX_PULSAR_REQUIRED"] = "true"
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want []string
	}{
		"an unknown role":       {[]string{"-role", "boss"}, nil, []string{"boss", "projector"}},
		"a role without Pulsar": {[]string{"-role", "api"}, nil, []string{"role api needs a broker", "set ONCEBOX_PULSAR_URL"}},
		"an unknown broker":     {[]string{"-broker", "redis"}, nil, []string{`there is no broker "redis"`, "rabbitmq"}},
		"a broker that it is built without": {nil, map[string]string{"ONCEBOX_NATS_URL": "nats://127.0.0.1:1"},
			[]string{"ONCEBOX_NATS_URL is set", "go run -C messaging/nats ./examples/orders"}},
		"two brokers": {nil, map[string]string{"ONCEBOX_NATS_URL": "nats://127.0.0.1:1", "ONCEBOX_PULSAR_URL": "pulsar://127.0.0.1:1"},
			[]string{"are both set", "-broker"}},
		"no database": {nil, map[string]string{"DATABASE_URL": ""}, []string{"set ONCEBOX_DATABASE_URL"}},
		"a database that is down": {nil, map[string]string{
			"DATABASE_URL": "postgres://u@127.0.0.1:1/d", "ONCEBOX_DATABASE_WAIT": "-1",
		}, []string{"127.0.0.1:1", "start it"}},
		"a setting that is none": {nil, map[string]string{"ONCEBOX_OUTBOX_LEASE": "soon"}, []string{`ONCEBOX_OUTBOX_LEASE is "soon"`}},
		"settings that conflict": {nil, map[string]string{"ONCEBOX_OUTBOX_LEASE": "1s"},
			[]string{"ONCEBOX_OUTBOX_PUBLISH_TIMEOUT (5s)", "ONCEBOX_OUTBOX_LEASE"}},
		"a Pulsar that is down": {
			[]string{"-role", "consumer"}, required,
			[]string{"127.0.0.1:1", "start the broker", "ONCEBOX_PULSAR_URL"},
		},
		"a Pulsar setting that is none": {
			[]string{"-role", "api"}, map[string]string{"PULSAR_URL": "http://127.0.0.1:1"}, []string{"pulsar://host:6650"},
		},
		"an address that is taken": {
			nil, map[string]string{"HTTP_ADDR": taken.Addr().String()}, []string{"HTTP_ADDR", "another address"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"ONCEBOX_DATABASE_URL", "ONCEBOX_PULSAR_URL", "ONCEBOX_NATS_URL", "PULSAR_URL", "ONCEBOX_SCHEMA"} {
				t.Setenv(name, "")
			}
			t.Setenv("DATABASE_URL", pgtest.URL(t))
			t.Setenv("HTTP_ADDR", "127.0.0.1:0")
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a service that starts all the same runs until somebody stops it
			defer cancel()
			err := run(ctx, []brokers.Kind{pulsar.Kind()}, c.args)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// Orders are taken while Pulsar is down: their announcements wait in the outbox.
func TestAPIDoesNotNeedPulsar(t *testing.T) {
	for name, value := range impatient {
		t.Setenv(name, value)
	}
	s := openShopAs(t, RoleAPI, config.Config{})
	s.requireReady()
	s.place("k1")
	require.Equal(t, 1, s.count("SELECT count(*) FROM outbox"))
}

// A process that is stopped ends as if it had nothing else to do.
func TestStopBeforeTheStart(t *testing.T) {
	t.Setenv("DATABASE_URL", pgtest.URL(t))
	t.Setenv("PULSAR_URL", "")
	t.Setenv("HTTP_ADDR", "127.0.0.1:0")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, run(ctx, []brokers.Kind{pulsar.Kind()}, nil))
}
