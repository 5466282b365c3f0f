package rabbitmq

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging/wire"
)

const (
	// prefix stands before the attributes of CloudEvents (AMQP protocol binding, section 3.1.1). The binding allows ":" in place of "_" as well, which
	// is understood when it is received.
	prefix      = "cloudEvents_"
	otherPrefix = "cloudEvents:"
	contentType = "content-type"
)

// format is the wire format of all messages. The routing key of AMQP has the topic, so the routing key of the event is an attribute.
var format = wire.NewFormat(wire.Binding{Prefix: prefix, CarriesKey: true, MaxName: maxName}) //nolint:gochecknoglobals // a constant

// messageOf returns an event as a message of AMQP. Attributes that AMQP has as properties are sent as both, so that other programs and the
// management plugin show them; if they differ, the headers count.
func messageOf(env *event.Envelope) amqp.Publishing {
	props := format.Properties(nil, env)
	p := amqp.Publishing{
		DeliveryMode: amqp.Persistent, ContentType: short(props[contentType]), MessageId: short(env.ID), Type: short(env.Type), AppId: short(env.Source),
		Timestamp: env.OccurredAt, Body: env.Payload, Headers: make(amqp.Table, len(props)),
	}
	if p.ContentType != "" {
		delete(props, contentType)
	}
	if env.OccurredAt.Unix() < 0 {
		p.Timestamp = time.Time{} // AMQP has no time before 1970
	}
	for name, value := range props {
		p.Headers[name] = value
	}
	return p
}

// short returns a text that AMQP can have as a property (section 4.2.5.3), and "" for a longer one.
func short(text string) string {
	if len(text) > maxName {
		return ""
	}
	return text
}

// headerSize returns the size of the frame with the properties of a message, in bytes. It cannot be split (AMQP 0-9-1, section 4.2.6.1).
func headerSize(p *amqp.Publishing) int {
	const frame, flags, length = 8, 14, 4
	n := frame + flags + length + 1 + 8 // delivery mode and timestamp
	for _, text := range []string{p.ContentType, p.MessageId, p.Type, p.AppId} {
		n += 1 + len(text)
	}
	for name, value := range p.Headers {
		text, _ := value.(string) // messageOf makes nothing else
		n += 1 + len(name) + 1 + length + len(text)
	}
	return n
}

// received returns a delivery in the form that package wire reads. place returns the place of a message that has no id.
func received(topic string, d *amqp.Delivery, place func() string) *wire.Received {
	props := make(map[string]string, len(d.Headers)+1)
	for name, value := range d.Headers {
		switch name {
		case "x-delivery-count", "x-acquired-count":
			continue // of the delivery, not of the message
		}
		if rest, ok := strings.CutPrefix(name, otherPrefix); ok {
			if _, both := d.Headers[prefix+rest]; !both {
				name = prefix + rest
			}
		}
		props[name] = textOf(value)
	}
	if _, ok := props[contentType]; !ok && d.ContentType != "" {
		props[contentType] = d.ContentType
	}
	if _, ours := props[prefix+wire.ID]; !ours {
		takeProperties(props, d)
	}
	return &wire.Received{
		Topic: topic, Properties: props, Payload: d.Body, Place: place, Origin: d.Exchange, Published: d.Timestamp,
	}
}

// takeProperties reads the properties of a message of another program that does not use CloudEvents.
func takeProperties(props map[string]string, d *amqp.Delivery) {
	for name, value := range map[string]string{
		prefix + wire.ID: d.MessageId, prefix + wire.Type: d.Type, prefix + wire.Source: d.AppId, prefix + wire.CorrelationID: d.CorrelationId,
		"content-encoding": d.ContentEncoding, "reply-to": d.ReplyTo,
	} {
		if _, taken := props[name]; !taken && value != "" {
			props[name] = value
		}
	}
}

// textOf returns the value of a header as text. AMQP has numbers, times, lists and tables as well.
func textOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return base64.StdEncoding.EncodeToString(v)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp.Decimal:
		return decimal(v)
	case amqp.Table, []any:
		text, err := json.Marshal(plain(v))
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(text)
	default:
		return fmt.Sprint(v)
	}
}

// plain returns the value of a header as JSON has it. Texts within lists and tables stay texts, everything else but numbers becomes text.
func plain(value any) any {
	switch v := value.(type) {
	case amqp.Table:
		all := make(map[string]any, len(v))
		for name, value := range v {
			all[name] = plain(value)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, value := range v {
			all[i] = plain(value)
		}
		return all
	case bool, int8, uint8, int16, uint16, int32, uint32, int64, nil:
		return v
	default:
		return textOf(v)
	}
}

// decimal writes 12345 with scale 2 as 123.45 (section 4.2.5.4).
func decimal(d amqp.Decimal) string {
	digits, isNegative := strings.CutPrefix(strconv.FormatInt(int64(d.Value), 10), "-")
	sign := ""
	if isNegative {
		sign = "-"
	}
	if d.Scale == 0 {
		return sign + digits
	}
	scale := int(d.Scale)
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale+1-len(digits)) + digits
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}

// attemptOf returns which delivery of a message this is, as far as the broker counts: the returns of a quorum queue, or only whether there was one.
func attemptOf(d *amqp.Delivery) int {
	switch n := d.Headers["x-delivery-count"].(type) {
	case int64:
		return 1 + int(max(n, 0))
	case int32:
		return 1 + int(max(n, 0))
	}
	if d.Redelivered {
		return 2
	}
	return 1
}
