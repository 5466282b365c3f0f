package pulsar

import (
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
)

// wireMessage is a message as it comes out of the broker.
type wireMessage struct {
	pulsarclient.Message

	payload    []byte
	key        string
	properties map[string]string
	eventTime  time.Time
	sealed     *pulsarclient.EncryptionContext
}

func (m *wireMessage) Payload() []byte                                       { return m.payload }
func (m *wireMessage) Key() string                                           { return m.key }
func (m *wireMessage) GetEncryptionContext() *pulsarclient.EncryptionContext { return m.sealed }
func (m *wireMessage) Properties() map[string]string                         { return m.properties }
func (*wireMessage) Topic() string                                           { return "persistent://public/default/order-partition-1" }
func (*wireMessage) ID() pulsarclient.MessageID                              { return pulsarclient.NewMessageID(12, 34, 5, 1) }
func (*wireMessage) PublishTime() time.Time                                  { return time.UnixMilli(1_700_000_000_123) }

func (m *wireMessage) EventTime() time.Time {
	if m.eventTime.IsZero() {
		return time.Unix(0, 0) // as the client has it
	}
	return time.UnixMilli(m.eventTime.UnixMilli())
}
