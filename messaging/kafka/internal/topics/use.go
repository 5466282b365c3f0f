package topics

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Unused reports whether no message was ever stored in a topic, or it does not exist. A partition counts its messages, deleted ones too.
func (k *Keeper) Unused(ctx context.Context, name string) (bool, error) {
	full := k.cfg.FullName(name)
	ends, err := k.admin.ListEndOffsets(ctx, full)
	if err == nil {
		err = ends.Error()
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return true, nil
	case err != nil:
		return false, k.Sorted("read the offsets of topic "+full, of(name), err)
	}
	for _, end := range ends[full] {
		if end.Offset > 0 {
			return false, nil
		}
	}
	return true, nil
}
