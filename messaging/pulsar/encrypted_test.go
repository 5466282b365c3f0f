package pulsar

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/wire"
)

// encrypting has a producer encrypt for a key that nobody here has.
func encrypting(t *testing.T) *pulsarclient.ProducerEncryptionInfo {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "public.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600))
	return &pulsarclient.ProducerEncryptionInfo{KeyReader: crypto.NewFileKeyReader(file, ""), Keys: []string{"theirs"}}
}

func TestEncryptedMessageStopsNobody(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Topics, cfg.Partitions = []string{"order"}, 1
	e := newEffects(t, cfg, n)
	s := messaging.Subscription{Topic: "order", Name: "s"}
	_, stop := e.consume(e.broker, s)
	theirs := stranger(t, cfg, pulsarclient.ProducerOptions{Topic: "order", DisableBatching: true, Encryption: encrypting(t)})
	bad := envelope("order", "theirs", 1)
	bad.AggregateType, bad.AggregateID = "order", "theirs"
	sendAll(t, theirs, wire.Encode(&bad))
	require.NoError(t, e.broker.Publish(t.Context(), series("order", 10, 100)))
	e.settled("order", "s")
	stop()
	e.requireOnceInOrder(10, 100)
	require.Equal(t, []string{"order-theirs-1"}, e.dead())
	d := e.letters()[0]
	require.Equal(t, "theirs", d.Envelope.AggregateID, "what describes it is not encrypted")
	require.Contains(t, d.Error, "encrypted")
	require.NotEqual(t, bad.Payload, d.Envelope.Payload)
}

// The broker takes a permit for each message of a batch, and the client gives back one.
func TestEncryptedBatchesStopNobody(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Topics, cfg.Partitions = []string{"order"}, 1
	e := newEffects(t, cfg, n)
	_, stop := e.consume(e.broker, messaging.Subscription{Topic: "order", Name: "s"})
	theirs := stranger(t, cfg, pulsarclient.ProducerOptions{
		Topic: "order", Encryption: encrypting(t), BatchingMaxPublishDelay: time.Hour, BatchingMaxMessages: 1000, CompressionType: pulsarclient.LZ4,
	})
	for range 3 {
		var batch []*pulsarclient.ProducerMessage
		for _, env := range series("order", 1, 100) {
			batch = append(batch, wire.Encode(&env))
		}
		sendAll(t, theirs, batch...)
	}
	e.eventually("each batch is a dead letter", func() bool { return len(e.dead()) == 3 })
	require.NoError(t, e.broker.Publish(t.Context(), series("order", 10, 100)))
	e.settled("order", "s")
	stop()
	e.requireOnceInOrder(10, 100)
	require.Len(t, e.dead(), 3)
	require.NotContains(t, e.dead(), "order-key0-1", "it is not the first message of the batch")
}
