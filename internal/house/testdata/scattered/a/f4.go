package a

func (s *Store) M4() {}
