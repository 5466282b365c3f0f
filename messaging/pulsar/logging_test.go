package pulsar

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/quietlog"
)

func discreetly(h slog.Handler, waiting *bool) discreet {
	return discreet{Handler: h, waiting: func() bool { return *waiting }, users: func() string { return "consumer mailer of order" }}
}

func TestLogIsDiscreet(t *testing.T) {
	var out bytes.Buffer
	waiting := false
	inner := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})
	log := pulsarlog.NewLoggerWithSlog(slog.New(discreetly(inner, &waiting)))
	secret := map[string]string{"name": "secret"}

	log.Debug("Received send request: ", "secret")
	require.Empty(t, out.String())

	log.WithField("properties", secret).WithField("size", 7).Error("too large")
	log.SubLogger(pulsarlog.Fields{"properties": secret, "topic": "order"}).Info("hello")
	slog.New(discreetly(inner, &waiting)).WithGroup("g").Warn("grouped", "properties", secret, "a", 1)
	require.NotContains(t, out.String(), "secret")
	for _, part := range []string{"size=7", "too large", "topic=order", "hello", "g.a=1"} {
		require.Contains(t, out.String(), part)
	}

	require.Contains(t, out.String(), `level=DEBUG msg="Pulsar's client: hello"`, "the client's info is our debug")
	require.Contains(t, out.String(), `level=ERROR msg="Pulsar's client: too large"`)
	log.Warnf("receive %d messages , all filtered", 3)
	require.Contains(t, out.String(), `level=DEBUG msg="Pulsar's client: receive 3 messages , all filtered"`, "it is part of normal work")

	out.Reset()
	waiting = true
	log.Error("connection refused")
	require.Contains(t, out.String(), `level=DEBUG msg="Pulsar's client: connection refused"`, "the broker is waited for")
	waiting = false

	out.Reset()
	normal := pulsarlog.NewLoggerWithSlog(slog.New(discreetly(slog.NewTextHandler(&out, nil), &waiting)))
	normal.Info("Connecting to broker")
	require.Empty(t, out.String())

	errorsOnly := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})
	quiet := pulsarlog.NewLoggerWithSlog(slog.New(discreetly(errorsOnly, &waiting)))
	quiet.Warn("not wanted")
	require.Empty(t, out.String(), "the program's own level holds")
}

// Each line says for which component the client speaks.
func TestLogNamesTheComponent(t *testing.T) {
	for name, c := range map[string]struct {
		fields pulsarlog.Fields
		says   string
	}{
		"a consumer":   {pulsarlog.Fields{"topic": "persistent://public/default/order-partition-3", "subscription": "billing"}, "consumer billing of order"},
		"a producer":   {pulsarlog.Fields{"topic": "persistent://public/default/order"}, "publisher of order"},
		"a connection": {pulsarlog.Fields{"remote_addr": "pulsar://127.0.0.1:6650"}, "consumer mailer of order"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := pulsarlog.NewLoggerWithSlog(slog.New(discreetly(slog.NewTextHandler(&out, nil), new(bool))))
			log.SubLogger(c.fields).WithField("cnx", 7).Warn("Connection was closed")
			require.Contains(t, out.String(), "component=\""+c.says+"\"")
		})
	}
}

// Each of many producers and consumers tries to connect by itself, and says so in ten ways.
func TestClientWithoutAConnectionIsOneGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logbook.Book
		logger := quietlog.New(book.Logger(), 0)
		log := pulsarlog.NewLoggerWithSlog(slog.New(discreetly(logger.Handler(), new(bool))))
		for range 100 {
			for n := range 8 {
				topic, name := fmt.Sprint("persistent://public/default/order-partition-", n), fmt.Sprint("p", n)
				of := log.SubLogger(pulsarlog.Fields{"topic": topic, "producer_name": name})
				of.WithField("cnx", n).Warn("Connection was closed")
				of.WithError(errors.New("connection error")).Warn("Failed to lookup topic")
				of.WithError(errors.New("connection closed")).Warn("Failed to reconnect to broker, will retry later.")
				of.WithError(fmt.Errorf("dial tcp 127.0.0.1:%d: connect: connection refused", n)).Error("Failed to create producer at newPartitionProducer")
			}
			connection := log.SubLogger(pulsarlog.Fields{"remote_addr": "pulsar://a:6650"})
			connection.WithError(io.EOF).Warn("Failed to perform initial handshake")
			connection.WithError(errors.New("dial tcp: i/o timeout")).Warn("Failed to connect to broker.")
			time.Sleep(time.Second) // of synctest
		}
		time.Sleep(time.Hour)
		require.LessOrEqual(t, book.Count("\n"), 2*3, book.String())
		require.Equal(t, book.Count("\n"), book.Count("Pulsar's client: "), book.String())
		require.Equal(t, 2, book.Count("Pulsar's client: not seen for a while"))

		log.WithField("topic", "x").Error("Failed to decompress message.")
		require.Equal(t, 1, book.Count("decompress"), "what is none of it has a line of its own")
	})
}

func TestNowhereKeepsNothing(t *testing.T) {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "x_total", Help: "x"})
	require.NoError(t, nowhere{}.Register(c))
	require.NoError(t, nowhere{}.Register(c))
	nowhere{}.MustRegister(c, c)
	require.True(t, nowhere{}.Unregister(c))
}
