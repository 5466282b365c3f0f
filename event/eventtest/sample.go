package eventtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/oncebox/oncebox/event"
)

// generate makes an event with a value in every field. The values reveal a change of the field's type: integers that fit neither a smaller integer
// nor a float64, fractions, and texts that are neither numbers nor base64.
func generate(goType reflect.Type) (event.Event, error) {
	elem := goType
	if goType.Kind() == reflect.Pointer {
		elem = goType.Elem()
	}
	sample := reflect.New(elem)
	if err := (filler{}).fill(sample.Elem(), elem.Name()); err != nil {
		return nil, err
	}
	if goType.Kind() != reflect.Pointer {
		sample = sample.Elem()
	}
	return sample.Interface().(event.Event), nil //nolint:forcetypeassert // it was registered as one
}

// filler counts, for each type, how many values of it enclose the present value, so that recursive types end.
type filler map[reflect.Type]int

// deepest is how often a type may enclose itself, the outermost one included.
const deepest = 2

func (f filler) fill(v reflect.Value, name string) error {
	typ := v.Type()
	if f[typ] == deepest {
		return nil
	}
	f[typ]++
	defer func() { f[typ]-- }()
	if known := special(typ); known != nil {
		v.Set(reflect.ValueOf(known))
		return nil
	}
	switch typ.Kind() { //nolint:exhaustive // what is left has no value in any codec
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-1<<(typ.Bits()-2) - 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1<<(typ.Bits()-1) + 1)
	case reflect.Float32:
		v.SetFloat(1.5e30)
	case reflect.Float64:
		v.SetFloat(1.5e300)
	case reflect.String:
		v.SetString(name + " ✓")
	case reflect.Struct:
		return f.fields(v)
	case reflect.Pointer:
		if f[typ.Elem()] == deepest {
			return nil
		}
		v.Set(reflect.New(typ.Elem()))
		return f.fill(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(typ, 1, 1))
		return f.fill(v.Index(0), name)
	case reflect.Array:
		for i := range v.Len() {
			if err := f.fill(v.Index(i), name); err != nil {
				return err
			}
		}
	case reflect.Map:
		return f.entry(v, name)
	case reflect.Interface:
		if typ.NumMethod() > 0 {
			return fmt.Errorf("the field %s is an interface, %s", name, typ)
		}
		v.Set(reflect.ValueOf(name + " ✓"))
	}
	return nil
}

func (f filler) fields(v reflect.Value) error {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		inner := field.Anonymous && field.Type.Kind() == reflect.Struct // encoding/json promotes its exported fields
		if !v.Field(i).CanSet() && !inner || field.Tag.Get("json") == "-" {
			continue
		}
		if err := f.fill(v.Field(i), field.Name); err != nil {
			return err
		}
	}
	return nil
}

func (f filler) entry(v reflect.Value, name string) error {
	key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
	if err := f.fill(key, name); err != nil {
		return err
	}
	if err := f.fill(value, name); err != nil {
		return err
	}
	v.Set(reflect.MakeMap(v.Type()))
	v.SetMapIndex(key, value)
	return nil
}

// special returns a value of types that cannot be filled field by field.
func special(typ reflect.Type) any {
	switch typ {
	case reflect.TypeFor[time.Time]():
		return time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	case reflect.TypeFor[json.Number]():
		return json.Number("9007199254740993.5")
	case reflect.TypeFor[json.RawMessage]():
		return json.RawMessage(`{"raw":9007199254740993}`)
	default:
		return nil
	}
}
