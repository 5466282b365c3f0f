package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/oncebox/oncebox/internal/commandtest"
	"github.com/oncebox/oncebox/messaging/kafka"
)

func TestMain(m *testing.M) { commandtest.Main(m, main) }

// start starts a cluster of three brokers on which a service shop has handled a message of the topic order.
func start(t *testing.T, options ...kfake.Opt) (cluster *kfake.Cluster, broker *kafka.Broker, url string) {
	t.Helper()
	cluster, err := kfake.NewCluster(append(options, kfake.NumBrokers(3))...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	url = strings.Join(cluster.ListenAddrs(), ",")
	broker, err = kafka.Connect(t.Context(), &kafka.Config{URL: url, Replication: 3, Partitions: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	commandtest.Use(t, broker, "order")
	return cluster, broker, url
}

// set changes a setting of the topic order.
func set(t *testing.T, url, setting, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(url, ",")...))
	require.NoError(t, err)
	defer client.Close()
	answers, err := kadm.NewClient(client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}, "order")
	require.NoError(t, err)
	require.NoError(t, answers[0].Err)
}

// The settings that lose events or hold them back are found, each with the command that mends it.
func TestDoctorFindsWhatHurts(t *testing.T) {
	_, broker, url := start(t)
	p := commandtest.New(t, "oncebox-kafka", "ONCEBOX_KAFKA_URL", url)
	set(t, url, "min.insync.replicas", "2")
	p.RequireFindings()

	set(t, url, "min.insync.replicas", "1")
	set(t, url, "unclean.leader.election.enable", "true")
	set(t, url, "retention.ms", "3600000")
	p.RequireFindings(
		"warning (broker): topic order: min.insync.replicas is 1, so a confirmed event may have one copy only",
		"problem (broker): topic order: unclean.leader.election.enable is true",
		"warning (broker): topic order: retention.ms is 1h0m0s, so a subscription that stands still for longer loses events",
	)
	p.RequireUse(broker)
	found := p.Doctor("--topic", "invoice")
	require.Len(t, found, 1)
	require.Contains(t, found[0], "topic invoice: it does not exist: make it with: kafka-topics.sh")
}

// A broker that is away, and a user that may not look, are findings: the command does not hang.
func TestDoctorCannotLook(t *testing.T) {
	cluster, _, url := start(t)
	cluster.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
			answer.Resources = append(answer.Resources, kmsg.DescribeConfigsResponseResource{
				ErrorCode: kerr.TopicAuthorizationFailed.Code, ResourceType: asked.ResourceType, ResourceName: asked.ResourceName,
			})
		}
		return answer, nil, true
	})
	p := commandtest.New(t, "oncebox-kafka", "ONCEBOX_KAFKA_URL", url)
	p.RequireFindings("unknown (broker): this check could not be made: ")
	cluster.Close()
	p.RequireFindings("problem (connection): Kafka at ")
}

// The address of another system is refused before anything waits for it.
func TestAddressOfAnotherSystem(t *testing.T) {
	p := commandtest.New(t, "oncebox-kafka")
	for _, url := range []string{"nats://localhost:4222", "pulsar://localhost:6650", "http://localhost:8080"} {
		p.RequireRefused("ONCEBOX_KAFKA_URL", url, "Config.URL is "+url+": give the addresses of brokers, host:9092, separated by commas (ONCEBOX_KAFKA_URL)")
	}
}

// A setting of the brokers is found, too, once and not for each topic.
func TestDoctorLooksAtTheBrokers(t *testing.T) {
	_, _, url := start(t, kfake.BrokerConfigs(map[string]string{"offsets.retention.minutes": "60"}))
	p := commandtest.New(t, "oncebox-kafka", "ONCEBOX_KAFKA_URL", url)
	set(t, url, "min.insync.replicas", "2")
	p.RequireFindings("warning (broker): offsets.retention.minutes is 60: a subscription that has no consumer for longer forgets its place")
}
