package brokers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging/brokers"
)

// program is built for two brokers.
func program() *brokers.Choice {
	return &brokers.Choice{
		Kinds: []brokers.Kind{
			{Name: "pulsar", Title: "Pulsar", Example: "pulsar://localhost:6650"}, {Name: "nats", Title: "NATS", Example: "nats://localhost:4222"},
		},
		Flag: "-broker", Others: func(name string) string { return "run oncebox-" + name },
	}
}

func TestChoose(t *testing.T) {
	for name, c := range map[string]struct {
		named string
		set   []string
		want  string
		fails string
	}{
		"nothing is set":                   {},
		"one address":                      {set: []string{"ONCEBOX_NATS_URL"}, want: "nats"},
		"the address of other tools":       {set: []string{"PULSAR_URL"}, want: "pulsar"},
		"ours wins over that of others":    {set: []string{"PULSAR_URL", "ONCEBOX_NATS_URL"}, want: "nats"},
		"a name and its address":           {named: "nats", set: []string{"ONCEBOX_NATS_URL"}, want: "nats"},
		"a name and others' address":       {named: "pulsar", set: []string{"PULSAR_URL"}, want: "pulsar"},
		"a name decides":                   {named: "nats", set: []string{"ONCEBOX_NATS_URL", "ONCEBOX_PULSAR_URL"}, want: "nats"},
		"none, although an address is set": {named: "none", set: []string{"ONCEBOX_NATS_URL"}},
		"two addresses": {
			set:   []string{"ONCEBOX_NATS_URL", "ONCEBOX_PULSAR_URL"},
			fails: "ONCEBOX_PULSAR_URL and ONCEBOX_NATS_URL are both set: unset the variable of the broker that is not meant, or name the broker with -broker",
		},
		"two addresses, one that the program is built without": {
			set: []string{"ONCEBOX_NATS_URL", "ONCEBOX_KAFKA_URL"}, fails: "ONCEBOX_NATS_URL and ONCEBOX_KAFKA_URL are both set",
		},
		"an unknown name":     {named: "redis", fails: `there is no broker "redis": give pulsar, nats, kafka, rabbitmq or none`},
		"a name without case": {named: "NATS", fails: `there is no broker "NATS"`},
		"a missing address": {
			named: "nats", set: []string{"PULSAR_URL"}, fails: "the broker nats needs an address: set ONCEBOX_NATS_URL, for example to nats://localhost:4222",
		},
		"an address that the program is built without": {
			set: []string{"ONCEBOX_KAFKA_URL"}, fails: "ONCEBOX_KAFKA_URL is set, but this program is built without it: run oncebox-kafka",
		},
		"a name that the program is built without": {
			named: "rabbitmq", fails: "the broker rabbitmq is asked for, but this program is built without it: run oncebox-rabbitmq",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"PULSAR_URL", "ONCEBOX_PULSAR_URL", "ONCEBOX_NATS_URL", "ONCEBOX_KAFKA_URL", "ONCEBOX_RABBITMQ_URL"} {
				t.Setenv(variable, "")
			}
			for _, variable := range c.set {
				t.Setenv(variable, "somewhere")
			}
			k, err := program().Choose(c.named)
			switch {
			case c.fails != "":
				require.ErrorContains(t, err, c.fails)
				require.Nil(t, k)
			case c.want == "":
				require.NoError(t, err)
				require.Nil(t, k)
			default:
				require.NoError(t, err)
				require.Equal(t, c.want, k.Name)
			}
		})
	}
	require.Equal(t, "pulsar, nats", program().Built())
	require.Equal(t, "ONCEBOX_PULSAR_URL or ONCEBOX_NATS_URL", program().Variables())
}

// A program without the broker of PULSAR_URL ignores that variable, which is not ours.
func TestAnotherToolsVariableIsIgnored(t *testing.T) {
	for _, variable := range []string{"ONCEBOX_PULSAR_URL", "ONCEBOX_NATS_URL", "ONCEBOX_KAFKA_URL", "ONCEBOX_RABBITMQ_URL"} {
		t.Setenv(variable, "")
	}
	t.Setenv("PULSAR_URL", "pulsar://localhost:6650")
	c := brokers.Choice{Kinds: program().Kinds[1:]}
	k, err := c.Choose("")
	require.NoError(t, err)
	require.Nil(t, k)
	_, err = c.Choose("pulsar")
	require.EqualError(t, err, "the broker pulsar is asked for, but this program is built without it")
}

// A check reads the variables of the adapter, and does not connect.
func TestCheckOnlyReads(t *testing.T) {
	type settings struct{ URL string }
	wrong := errors.New("NATS_URL is wrong")
	k := brokers.Kind{Name: "nats", Connect: brokers.Connector("NATS_", func(*settings, brokers.Options) {},
		func(context.Context, *settings) (brokers.Connection, error) {
			t.Error("it connects")
			return nil, nil
		})}
	require.NoError(t, k.Check(func(prefix string, cfg any) error {
		require.Equal(t, "NATS_", prefix)
		require.IsType(t, &settings{}, cfg)
		return nil
	}))
	require.Equal(t, wrong, k.Check(func(string, any) error { return wrong }))
}
