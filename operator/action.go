package operator

// Action is what was done, in the words of the audit.
type Action string

// The actions. Each is named after the method that does it.
const (
	// Replay: a dead letter is published, or handled, again.
	Replay Action = "replay"
	// Edit: a dead letter is replayed with another payload.
	Edit Action = "edit"
	// Discard: a dead letter is deleted for good.
	Discard Action = "discard"
	// Expire: dead letters were deleted by their retention.
	Expire Action = "expire"

	// Retry: a message that failed is tried at once.
	Retry Action = "retry"
	// GiveUp: a message that failed becomes a dead letter at once.
	GiveUp Action = "give_up"

	// Cancel: a delayed event is deleted before its time.
	Cancel Action = "cancel"
	// Reschedule: a delayed event gets another time.
	Reschedule Action = "reschedule"

	// Pause: the events of a tenant are not published, or the messages of a consumer are not handled, any more.
	Pause Action = "pause"
	// Resume: the events of a tenant are published, or the messages of a consumer are handled, again.
	Resume Action = "resume"
	// Forget: a consumer was removed that no process runs any more.
	Forget Action = "forget"
	// Move: the events of a tenant are published in another group of lanes.
	Move Action = "move"

	// Note: the note of a group of failures was set.
	Note Action = "note"
	// Archive: a group of failures is out of the lists until the next failure.
	Archive Action = "archive"
	// Unarchive: an archived group is back in the lists.
	Unarchive Action = "unarchive"

	// TakeOwnership: the events of a database are published by another deployment.
	TakeOwnership Action = "take_ownership"
	// Retention: published events are kept for another time.
	Retention Action = "retention"

	// Done: an unknown step of a request was done.
	Done Action = "done"
	// NotDone: an unknown step of a request was not done.
	NotDone Action = "not_done"
)

// needsReason returns the reason why an action requires one from the operator, "" if it does not.
func (a Action) needsReason() string {
	switch a {
	case Discard, Expire, Cancel:
		return "say why: what is deleted cannot be brought back"
	case Edit:
		return "say why: the old payload cannot be brought back"
	case GiveUp:
		return "say why: the messages behind this one wait until the dead letter is replayed or discarded"
	case Pause:
		return "say why: people who find it paused read it"
	case Archive:
		return "say why: people who look for these failures read it"
	case TakeOwnership:
		return "say why: from now on another deployment publishes the events of this database"
	case Retention:
		return "say why: from now on published events are kept for a different time"
	default:
		return ""
	}
}
