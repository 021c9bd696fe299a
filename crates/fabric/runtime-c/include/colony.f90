! SPDX-License-Identifier: MIT OR Apache-2.0
!
! colony.h for Fortran 2003 and later, by iso_c_binding. Compile this file with the program.
!
! Callbacks are module procedures with bind(c) and the arguments of colony.h; c_funloc() makes the pointers in
! colony_class. States and messages are C pointers: c_f_pointer() makes Fortran pointers of them, c_loc() the reverse.
! Texts end with c_null_char. The functions below have the names of colony.h; fewer than all are here: the others follow the
! same pattern.
module colony
   use, intrinsic :: iso_c_binding
   implicit none

   integer(c_int), parameter :: colony_ok = 0
   integer(c_int32_t), parameter :: colony_sum = 0, colony_min = 1, colony_max = 2, colony_gather = 3
   integer(c_int32_t), parameter :: colony_double = 0, colony_int64 = 1
   integer(c_int32_t), parameter :: colony_to_element = 0, colony_to_array = 1, colony_to_exit = 2
   integer(c_int32_t), parameter :: colony_block = 0, colony_round_robin = 1, colony_hash = 2

   type, bind(c) :: colony_array
      integer(c_int32_t) :: id = 0
      integer(c_int16_t) :: class_number = 0
      integer(c_int8_t) :: dimensions = 0
      integer(c_int8_t) :: kind = 0
   end type

   type, bind(c) :: colony_index
      integer(c_int64_t) :: at(6) = 0
   end type

   type, bind(c) :: colony_element
      type(colony_array) :: array
      type(colony_index) :: index
   end type

   type, bind(c) :: colony_target
      integer(c_int32_t) :: kind = colony_to_exit
      integer(c_int32_t) :: unused = 0
      type(colony_element) :: element
   end type

   type, bind(c) :: colony_reduction
      integer(c_int64_t) :: number
      integer(c_int32_t) :: value_type
      integer(c_int32_t) :: elements
      integer(c_size_t) :: count
      type(c_ptr) :: doubles, integers, indices, offsets
   end type

   type, bind(c) :: colony_class
      integer(c_size_t) :: size = 0
      type(c_ptr) :: name = c_null_ptr
      type(c_ptr) :: entries = c_null_ptr
      integer(c_int32_t) :: entry_count = 0
      type(c_funptr) :: create = c_null_funptr
      type(c_funptr) :: destroy = c_null_funptr
      type(c_funptr) :: pack = c_null_funptr
      type(c_funptr) :: unpack = c_null_funptr
      type(c_funptr) :: entry = c_null_funptr
      type(c_funptr) :: arrived = c_null_funptr
      type(c_funptr) :: resume = c_null_funptr
      type(c_funptr) :: reduced = c_null_funptr
      type(c_funptr) :: quiet = c_null_funptr
      type(c_funptr) :: state_bytes = c_null_funptr
   end type

   type, bind(c) :: colony_options
      integer(c_size_t) :: size = 0
      integer(c_int32_t) :: threads = 0
      integer(c_int32_t) :: steal = 0
      type(c_ptr) :: balance = c_null_ptr
   end type

   interface
      function colony_program_new() bind(c) result(program)
         import :: c_ptr
         type(c_ptr) :: program
      end function

      subroutine colony_program_free(program) bind(c)
         import :: c_ptr
         type(c_ptr), value :: program
      end subroutine

      function colony_program_class(program, description) bind(c) result(number)
         import :: c_ptr, c_int32_t, colony_class
         type(c_ptr), value :: program
         type(colony_class), intent(in) :: description
         integer(c_int32_t) :: number
      end function

      function colony_run(program, options, argc, argv, start) bind(c) result(code)
         import :: c_ptr, c_funptr, c_int, colony_options
         type(c_ptr), value :: program
         type(colony_options), intent(in) :: options
         integer(c_int), value :: argc
         type(c_ptr), value :: argv
         type(c_funptr), value :: start
         integer(c_int) :: code
      end function

      function colony_pe(context) bind(c) result(pe)
         import :: c_ptr, c_int32_t
         type(c_ptr), value :: context
         integer(c_int32_t) :: pe
      end function

      function colony_pes(context) bind(c) result(pes)
         import :: c_ptr, c_int32_t
         type(c_ptr), value :: context
         integer(c_int32_t) :: pes
      end function

      function colony_this(context, element) bind(c) result(status)
         import :: c_ptr, c_int, colony_element
         type(c_ptr), value :: context
         type(colony_element), intent(out) :: element
         integer(c_int) :: status
      end function

      function colony_exit(context, code) bind(c) result(status)
         import :: c_ptr, c_int
         type(c_ptr), value :: context
         integer(c_int), value :: code
         integer(c_int) :: status
      end function

      function colony_fail(context, text) bind(c) result(status)
         import :: c_ptr, c_int, c_char
         type(c_ptr), value :: context
         character(kind=c_char), intent(in) :: text(*)
         integer(c_int) :: status
      end function

      function colony_create_array(context, class_number, dimensions, extents, map, init, length, array) &
         bind(c) result(status)
         import :: c_ptr, c_int, c_int32_t, c_size_t, colony_array
         type(c_ptr), value :: context
         integer(c_int32_t), value :: class_number, dimensions
         integer(c_int32_t), intent(in) :: extents(*)
         integer(c_int32_t), value :: map
         type(c_ptr), value :: init
         integer(c_size_t), value :: length
         type(colony_array), intent(out) :: array
         integer(c_int) :: status
      end function

      function colony_send(context, to, entry, message, length) bind(c) result(status)
         import :: c_ptr, c_int, c_int32_t, c_size_t, colony_element
         type(c_ptr), value :: context
         type(colony_element), value :: to
         integer(c_int32_t), value :: entry
         type(c_ptr), value :: message
         integer(c_size_t), value :: length
         integer(c_int) :: status
      end function

      function colony_broadcast(context, to, entry, message, length) bind(c) result(status)
         import :: c_ptr, c_int, c_int32_t, c_size_t, colony_array
         type(c_ptr), value :: context
         type(colony_array), value :: to
         integer(c_int32_t), value :: entry
         type(c_ptr), value :: message
         integer(c_size_t), value :: length
         integer(c_int) :: status
      end function

      function colony_contribute(context, value_type, op, values, count, to) bind(c) result(status)
         import :: c_ptr, c_int, c_int32_t, c_size_t, colony_target
         type(c_ptr), value :: context
         integer(c_int32_t), value :: value_type, op
         type(c_ptr), value :: values
         integer(c_size_t), value :: count
         type(colony_target), value :: to
         integer(c_int) :: status
      end function

      function colony_migrate_to(context, pe) bind(c) result(status)
         import :: c_ptr, c_int, c_int32_t
         type(c_ptr), value :: context
         integer(c_int32_t), value :: pe
         integer(c_int) :: status
      end function

      function colony_at_sync(context) bind(c) result(status)
         import :: c_ptr, c_int
         type(c_ptr), value :: context
         integer(c_int) :: status
      end function

      function colony_buffer_write(buffer, bytes, length) bind(c) result(status)
         import :: c_ptr, c_int, c_size_t
         type(c_ptr), value :: buffer, bytes
         integer(c_size_t), value :: length
         integer(c_int) :: status
      end function
   end interface
end module
