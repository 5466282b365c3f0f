package answer

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

// AdminError is an answer of the admin API other than a success.
type AdminError struct {
	Call   string
	Status int
	Reason string
}

func (e *AdminError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.Call, e.Status, http.StatusText(e.Status), e.Reason)
}

// topicTroubles are the broker's answers that concern one topic and do not pass by themselves. The client reports them as text only.
var topicTroubles = []string{ //nolint:gochecknoglobals // a constant
	"TopicNotFound", "TopicTerminated", "AuthorizationError", "ProducerBlockedQuotaExceeded", "InvalidTopicName", "IncompatibleSchema",
	"NotAllowedError", "ProducerFenced", "ProducerBusy", "ConsumerBusy", "SubscriptionNotFound", "topic not found", "topic terminated",
	"producer blocked", "producer fenced", "Namespace not found", "NamespaceNotFound", "Policies not found", "Tenant not found",
	"Topic does not exist", "Namespace does not exist",
}

// IsTopicTrouble reports whether the broker refuses something about one topic, for good.
func IsTopicTrouble(err error) bool {
	text := err.Error()
	return slices.ContainsFunc(topicTroubles, func(trouble string) bool { return strings.Contains(text, trouble) })
}

// Came reports whether err is an answer of the broker. If not, the broker did not answer.
// A MetadataError is the broker's own trouble, but it proves that a broker answers.
func Came(err error) bool {
	return IsTopicTrouble(err) || strings.Contains(err.Error(), "MetadataError")
}

// ErrNotLetIn says what to do when the broker refuses the credentials.
var ErrNotLetIn = errors.New("the broker refuses the credentials: correct Config.Token (ONCEBOX_PULSAR_TOKEN), TokenFile " +
	"(ONCEBOX_PULSAR_TOKEN_FILE) " +
	"or TLSCert and TLSKey (ONCEBOX_PULSAR_TLS_CERT, ONCEBOX_PULSAR_TLS_KEY)")

// ErrWrongPort means that something else than a broker answers at the address.
var ErrWrongPort = errors.New("this is a web server, perhaps Pulsar's admin API, and not the broker: " +
	"Config.URL (ONCEBOX_PULSAR_URL) takes the broker's own port, usually 6650, and " +
	"Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL) the other, usually http and 8080")

// IsNotLetIn reports whether the broker refuses the credentials.
func IsNotLetIn(err error) bool {
	return errors.Is(err, ErrNotLetIn) || strings.Contains(err.Error(), "AuthenticationError")
}

// IsForeign reports whether a subscription belongs to another service, or to another database of this one.
func IsForeign(err error) bool {
	_, source := errors.AsType[*messaging.SourceError](err)
	_, installation := errors.AsType[*messaging.InstallationError](err)
	return source || installation
}

// IsMissing reports whether the topic, namespace or tenant does not exist.
func IsMissing(err error) bool {
	text := strings.ToLower(err.Error())
	return IsStatus(err, http.StatusNotFound) || IsTopicTrouble(err) &&
		(strings.Contains(text, "notfound") || strings.Contains(text, "not found") || strings.Contains(text, "does not exist"))
}

// IsStatus reports whether the admin API has answered with one of the statuses.
func IsStatus(err error, statuses ...int) bool {
	answer, ok := errors.AsType[*AdminError](err)
	return ok && slices.Contains(statuses, answer.Status)
}

// IsForbidden reports whether the admin API refuses the credentials.
func IsForbidden(err error) bool { return IsStatus(err, http.StatusUnauthorized, http.StatusForbidden) }

// Lasts reports whether waiting will not mend the error: the configuration has to change, or somebody has to act at the broker.
func Lasts(err error) bool {
	if IsForeign(err) {
		return true
	}
	answer, ok := errors.AsType[*AdminError](err)
	return ok && answer.Status < http.StatusInternalServerError || IsNotLetIn(err) || IsTopicTrouble(err) || errors.Is(err, ErrWrongPort)
}

// Down is the error of a call that did not reach the broker at url, which it shows without a password.
func Down(call, url string, err error) error {
	return fmt.Errorf("%w: pulsar: %s: %s: %w", messaging.ErrBrokerDown, call, adapters.Redacted(url), err)
}
